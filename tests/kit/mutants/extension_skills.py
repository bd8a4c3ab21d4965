"""A healthy server with skills and with pages of tools, and servers that break a rule for one of these extensions."""

from __future__ import annotations

import hashlib
from typing import ClassVar

from tests.kit.mutants.model import MODERN, Session, breaks
from tests.kit.mutants.server import PREFIX, Message, Refused, Request

EXTENSION = f"{PREFIX}skills"
SCHEME = "skill://"
HIDDEN = "desk/hidden/SKILL.md"
"""A skill that is served, but not listed."""

FRONTMATTER = "---\nname: {name}\ndescription: It helps.\n---\n"
TEXTS = {
    "desk/lamp/SKILL.md": FRONTMATTER.format(name="lamp"),
    "desk/lamp/parts/bulb.md": "A bulb.",
    "desk/lamp/parts/old/wick.md": "A wick.",
    "desk/lamp/picture.png": "\x00",
    "pen/SKILL.md": FRONTMATTER.format(name="pen"),
    "ink/SKILL.md": FRONTMATTER.format(name="ink"),
    "chair/SKILL.md": FRONTMATTER.format(name="chair"),
    HIDDEN: FRONTMATTER.format(name="hidden"),
}
SKILLS = [path.removesuffix("/SKILL.md") for path in TEXTS if path.endswith("/SKILL.md")]
DYNAMIC = "chair"
MARKDOWN, DIRECTORY = "text/markdown", "inode/directory"

APP = "ui://twin/app"
APP_TYPE = "text/html;profile=mcp-app"
CALLED = "add"
"""The tool with a page."""


class SkilledSession(Session):
    """A healthy server with skills and a page."""

    features: ClassVar[Message] = {"directoryRead": True}

    def declared(self, request: Request) -> Message:
        return super().declared(request) | {"extensions": {EXTENSION: self.features}}

    async def answer(self, request: Request) -> Message:
        methods = {"skills/list": self.listed, "skills/get": self.get, "resources/directory/read": self.directory}
        if request.modern and request.method in methods:
            return methods[request.method](request)
        return await super().answer(request)

    # --- skills -------------------------------------------------------------------------------------------------------

    def listed(self, request: Request) -> Message:
        entries = [self.entry(skill) for skill in SKILLS if f"{skill}/SKILL.md" != HIDDEN]
        return self.page(request, "skills", entries) | self.fresh()

    def fresh(self) -> Message:
        """Return for how long an entry may be kept."""
        return {"ttlMs": 1000, "cacheScope": "public"}

    def get(self, request: Request) -> Message:
        uri = str(request.params.get("uri"))
        skill = uri.removeprefix(SCHEME).removesuffix("/SKILL.md")
        if uri != self.uri(f"{skill}/SKILL.md") or skill not in SKILLS:
            raise Refused(-32602, "Not a skill")
        return {"skill": self.entry(skill)} | self.fresh()

    def uri(self, path: str) -> str:
        return f"{SCHEME}{path}"

    def entry(self, skill: str) -> Message:
        files = [self.file(path) for path in TEXTS if path.startswith(f"{skill}/")]
        return {
            "uri": self.uri(f"{skill}/SKILL.md"),
            "frontmatter": self.frontmatter(skill),
            "resources": "dynamic" if skill == DYNAMIC else files,
        }

    def frontmatter(self, skill: str) -> Message:
        return {"name": skill.rpartition("/")[2], "description": "It helps."}

    def file(self, path: str) -> Message:
        raw = TEXTS[path].encode()
        return {"uri": self.uri(path), "digest": f"sha256:{hashlib.sha256(raw).hexdigest()}", "size": len(raw)}

    # --- content ------------------------------------------------------------------------------------------------------

    async def resources_read(self, request: Request) -> Message:
        uri = str(request.params.get("uri"))
        if uri == APP:
            return {"contents": [self.app()]}
        path = uri.removeprefix(SCHEME)
        if uri.startswith(SCHEME) and path in TEXTS:
            return {"contents": [{"uri": uri, "text": self.content(path)}]}
        return await super().resources_read(request)

    def content(self, path: str) -> str:
        return TEXTS[path]

    def directory(self, request: Request) -> Message:
        uri = str(request.params.get("uri"))
        inside = uri.removeprefix(SCHEME) + "/"
        if not any(path.startswith(inside) for path in TEXTS):
            raise Refused(-32602, "Not a directory")
        names = {path.removeprefix(inside).partition("/")[0]: path for path in TEXTS if path.startswith(inside)}
        return self.page(request, "resources", [self.child(inside + name) for name in sorted(names)])

    def child(self, path: str) -> Message:
        kind = MARKDOWN if path in TEXTS else DIRECTORY
        return {"uri": self.uri(path), "name": path.rpartition("/")[2], "mimeType": kind}

    # --- pages --------------------------------------------------------------------------------------------------------

    def tools(self, request: Request) -> list[Message]:
        return [
            tool | ({"_meta": {"ui": self.of_tool()}} if tool["name"] == CALLED else {})
            for tool in super().tools(request)
        ]

    def of_tool(self) -> Message:
        return {"resourceUri": APP, "visibility": ["model", "app"]}

    def app(self) -> Message:
        ui = {"csp": {"connectDomains": ["https://desk.example"]}, "permissions": {"camera": {}}, "prefersBorder": True}
        return {"uri": APP, "mimeType": APP_TYPE, "text": "<!doctype html><p>desk", "_meta": {"ui": ui}}


# --- skills -----------------------------------------------------------------------------------------------------------


@breaks("ext-skill-resources", revision=MODERN)
class SkillsWithoutResources(SkilledSession):
    def declared(self, request: Request) -> Message:
        found = super().declared(request)
        del found["resources"]
        return found


@breaks("ext-skill-methods", revision=MODERN)
class SkillsAreOnlyListed(SkilledSession):
    def get(self, request: Request) -> Message:
        raise Refused(-32601, "Unknown method skills/get")


@breaks("ext-skill-result", revision=MODERN)
class SkillsAreNeverStale(SkilledSession):
    def fresh(self) -> Message:
        return {"cacheScope": "everybody"}


@breaks("ext-skill-entry", revision=MODERN)
class DigestsOfMd5(SkilledSession):
    def file(self, path: str) -> Message:
        return super().file(path) | {"digest": "md5:d41d8cd98f00b204e9800998ecf8427e"}


@breaks("ext-skill-entry", revision=MODERN)
class SkillsWithoutDescriptions(SkilledSession):
    def frontmatter(self, skill: str) -> Message:
        return {"name": skill.rpartition("/")[2]}


@breaks("ext-skill-entry", revision=MODERN)
class DynamicSkillsWithoutFiles(SkilledSession):
    def entry(self, skill: str) -> Message:
        return super().entry(skill) | ({"resources": None} if skill == DYNAMIC else {})


@breaks("ext-skill-name", revision=MODERN)
class SkillsWithTitles(SkilledSession):
    def frontmatter(self, skill: str) -> Message:
        return super().frontmatter(skill) | {"name": skill.title()}


@breaks("ext-skill-files", "ext-skill-children", "ext-skill-no-directory", revision=MODERN)
class SkillsWithoutTheirText(SkilledSession):
    def entry(self, skill: str) -> Message:
        found = super().entry(skill)
        if found["resources"] != "dynamic":
            found["resources"] = found["resources"][1:]
        return found


@breaks("ext-skill-files", revision=MODERN)
class SkillsWithFilesOfOthers(SkilledSession):
    def entry(self, skill: str) -> Message:
        found = super().entry(skill)
        if found["resources"] != "dynamic":
            found["resources"] = [*found["resources"], self.file("ink/SKILL.md"), self.file("pen/SKILL.md")]
        return found


@breaks("ext-skill-limits", "ext-skill-content", "ext-skill-children", revision=MODERN)
class SkillsOfAThousandFiles(SkilledSession):
    def entry(self, skill: str) -> Message:
        found = super().entry(skill)
        if skill == "pen":
            found["resources"] += [self.file("pen/SKILL.md") | {"uri": self.uri(f"pen/{n}")} for n in range(999)]
        return found


@breaks("ext-skill-found", revision=MODERN)
class OnlySomeSkillsAreFound(SkilledSession):
    def get(self, request: Request) -> Message:
        if str(request.params.get("uri")).endswith("pen/SKILL.md"):
            raise Refused(-32602, "Not a skill")
        return super().get(request)


@breaks("ext-skill-unknown", revision=MODERN)
class UnknownSkillsAreInternalErrors(SkilledSession):
    def get(self, request: Request) -> Message:
        try:
            return super().get(request)
        except Refused:
            raise Refused(-32603, "KeyError") from None


@breaks("ext-skill-content", revision=MODERN)
class SkillsAreRewritten(SkilledSession):
    def content(self, path: str) -> str:
        return super().content(path) + "\n"


@breaks("ext-skill-directory", revision=MODERN)
class OnlyRootsAreDirectories(SkilledSession):
    def directory(self, request: Request) -> Message:
        if str(request.params.get("uri")).removeprefix(SCHEME) not in SKILLS:
            raise Refused(-32602, "Not a directory")
        return super().directory(request)


@breaks("ext-skill-no-directory", revision=MODERN)
class EverythingIsADirectory(SkilledSession):
    def directory(self, request: Request) -> Message:
        try:
            return super().directory(request)
        except Refused:
            return {"resources": []}


@breaks("ext-skill-children", revision=MODERN)
class DirectoriesListWhatIsBelow(SkilledSession):
    def directory(self, request: Request) -> Message:
        super().directory(request)
        inside = str(request.params["uri"]).removeprefix(SCHEME) + "/"
        return {"resources": [self.child(path) for path in TEXTS if path.startswith(inside)]}


@breaks("ext-skill-children", revision=MODERN)
class DirectoriesAreText(SkilledSession):
    def child(self, path: str) -> Message:
        return super().child(path) | {"mimeType": MARKDOWN}


# --- pages ------------------------------------------------------------------------------------------------------------


@breaks("ext-app-uri")
class PagesOverHttps(SkilledSession):
    def of_tool(self) -> Message:
        return {"resourceUri": "https://desk.example/app"}


@breaks("ext-app-visibility")
class ToolsForUsers(SkilledSession):
    def of_tool(self) -> Message:
        return super().of_tool() | {"visibility": ["user"]}


@breaks("ext-app-exists")
class PagesThatAreNotThere(SkilledSession):
    def of_tool(self) -> Message:
        return {"resourceUri": "ui://twin/other"}


@breaks("ext-app-type")
class PagesAreHtml(SkilledSession):
    def app(self) -> Message:
        return super().app() | {"mimeType": "text/html"}


@breaks("ext-app-html")
class PagesAreFragments(SkilledSession):
    def app(self) -> Message:
        return super().app() | {"text": "<p>desk"}


@breaks("ext-app-metadata")
class PagesWithOneOrigin(SkilledSession):
    def app(self) -> Message:
        return super().app() | {"_meta": {"ui": {"csp": {"connectDomains": "https://desk.example"}}}}


@breaks("ext-app-content")
class ResultsForPagesAlone(SkilledSession):
    async def tool_add(self, request: Request, arguments: Message) -> Message:
        return await super().tool_add(request, arguments) | {"content": []}
