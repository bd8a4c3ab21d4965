"""Extensions of the protocol: tasks, apps, skills, and the classes for your own extensions.

See ``Server(extensions=…)``, ``Client(extensions=…)``, and 2026-07-28 `basic/versioning`, Extension Negotiation.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.client.access import ClientAccess as ClientAccess
    from trio_mcp.client.extension import ClientExtension as ClientExtension, Finisher as Finisher
    from trio_mcp.extensions.apps.context import HostContext as HostContext
    from trio_mcp.extensions.apps.extension import Apps as Apps
    from trio_mcp.extensions.apps.host import AppHost as AppHost
    from trio_mcp.extensions.apps.limits import AppLimits as AppLimits
    from trio_mcp.extensions.apps.names import AppCallCancelled as AppCallCancelled, AppPageError as AppPageError
    from trio_mcp.extensions.apps.options import AppHostOptions as AppHostOptions
    from trio_mcp.extensions.apps.pages import PageDetails as PageDetails
    from trio_mcp.extensions.apps.policy import Csp as Csp
    from trio_mcp.extensions.skills.catalog import Rescan as Rescan
    from trio_mcp.extensions.skills.client import ClientSkills as ClientSkills
    from trio_mcp.extensions.skills.entries import (
        RefusedEntry as RefusedEntry,
        SkillEntry as SkillEntry,
        SkillList as SkillList,
        SkillResource as SkillResource,
    )
    from trio_mcp.extensions.skills.errors import (
        SkillError as SkillError,
        SkillFolderError as SkillFolderError,
        SkillMismatch as SkillMismatch,
        SkillRefused as SkillRefused,
    )
    from trio_mcp.extensions.skills.extension import Skills as Skills
    from trio_mcp.extensions.skills.group import GroupSkills as GroupSkills
    from trio_mcp.extensions.skills.loaded import LoadedSkill as LoadedSkill
    from trio_mcp.extensions.tasks.client import ClientTasks as ClientTasks
    from trio_mcp.extensions.tasks.errors import TaskCancelled as TaskCancelled, TaskExpired as TaskExpired
    from trio_mcp.extensions.tasks.extension import Tasks as Tasks
    from trio_mcp.extensions.tasks.handle import TaskHandle as TaskHandle, TaskWatch as TaskWatch
    from trio_mcp.extensions.tasks.options import TaskOptions as TaskOptions
    from trio_mcp.extensions.tasks.wire import TaskState as TaskState
    from trio_mcp.server.extensions import ExtensionRun as ExtensionRun, ServerExtension as ServerExtension
    from trio_mcp.server.features.extension_parts import (
        ExtensionMethod as ExtensionMethod,
        ExtensionNotification as ExtensionNotification,
        ListenField as ListenField,
    )
    from trio_mcp.server.task_policy import TaskPolicy as TaskPolicy
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
