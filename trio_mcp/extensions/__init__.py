"""Extensions of the protocol: those of this library, and what you build your own on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.client.access import ClientAccess as ClientAccess
    from trio_mcp.client.extension import ClientExtension as ClientExtension, Finisher as Finisher
    from trio_mcp.extensions.tasks.extension import Tasks as Tasks
    from trio_mcp.extensions.tasks.options import TaskOptions as TaskOptions
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
