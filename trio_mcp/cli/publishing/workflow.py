"""The workflow for GitHub that publishes a package and its server when a tag is pushed, without a secret."""

from __future__ import annotations

from string import Template
from typing import Final

__all__ = ["WORKFLOW_PATH", "workflow"]

WORKFLOW_PATH: Final = ".github/workflows/publish-mcp.yml"

_TEXT: Final = Template("""\
# A tag v1.2.3 publishes version 1.2.3: on PyPI, and then in the MCP registry. Both know this workflow by its identity
# (OIDC), so no token is kept anywhere. PyPI has to be told once: Publishing, add a trusted publisher, with the name of
# this file and the environment `pypi`.
name: Publish

on:
  push:
    tags: ["v*"]

permissions: {}

concurrency:
  group: publish-$${{ github.ref }}
  cancel-in-progress: false

jobs:
  build:
    runs-on: ubuntu-24.04
    timeout-minutes: 10
    permissions:
      contents: read
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with:
          persist-credentials: false
      - uses: actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97 # v7.0.0
        with:
          python-version: "3.13"
      - run: python -m pip install build .
      - name: Is this the tag of the version, and server.json up to date?
        run: |
          grep -qF "\\"version\\": \\"$${GITHUB_REF_NAME#v}\\"" server.json
          trio-mcp publish $target
      - run: python -m build
      - uses: actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0
        with:
          name: dist
          path: dist
          if-no-files-found: error

  pypi:
    needs: build
    runs-on: ubuntu-24.04
    timeout-minutes: 10
    environment: pypi
    permissions:
      id-token: write # proves to PyPI which workflow this is
    steps:
      - uses: actions/download-artifact@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c # v8.0.1
        with:
          name: dist
          path: dist
      - uses: pypa/gh-action-pypi-publish@ba38be9e461d3875417946c167d0b5f3d385a247 # v1.14.1

  registry:
    needs: pypi
    runs-on: ubuntu-24.04
    timeout-minutes: 10
    permissions:
      contents: read
      id-token: write # proves to the registry whose repository this is
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with:
          persist-credentials: false
      - name: Get mcp-publisher
        run: |
          releases=https://github.com/modelcontextprotocol/registry/releases
          curl -fsSL "$$releases/latest/download/mcp-publisher_linux_amd64.tar.gz" | tar xz mcp-publisher
      - run: ./mcp-publisher login github-oidc
      - name: Publish, once PyPI shows the new README
        run: |
          for _ in 1 2 3 4 5 6; do
            if ./mcp-publisher publish; then exit 0; fi
            sleep 30
          done
          exit 1
""")


def workflow(target: str) -> bytes:
    """Return the text of the workflow.

    Args:
        target: The FILE of `trio-mcp publish`, relative to the root of the repository, and quoted for a shell.
    """
    return _TEXT.substitute(target=target).encode()
