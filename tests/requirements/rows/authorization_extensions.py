"""``extensions/auth``: programs that sign in by themselves, and organizations that decide for their people."""

from __future__ import annotations

from tests.requirements.model import Topic

topic = Topic("extensions of authorization")

topic.held(
    """
    A client with credentials of its own declares the extension.
        extensions/auth/oauth-client-credentials#for-mcp-clients test_machines.py::test_what_clients_declare modern
    A client with credentials of its own gets a token before its requests go through.
        extensions/auth/oauth-client-credentials#for-mcp-clients test_machines.py::test_a_program_signs_in_by_itself
        2025-11-25+
    A client with credentials of its own gets a new token when the old one has expired.
        extensions/auth/oauth-client-credentials#for-mcp-clients test_machines.py::test_64_calls_at_expiry_ask_once
        2025-11-25+
    A client signs its assertions with its key, for the authorization server, for a short time.
        extensions/auth/oauth-client-credentials#jwt-bearer-assertions-recommended
        test_requests.py::test_a_key_signs_for_the_issuer_and_each_time_anew 2025-11-25+
    A client sends its secret only to the authorization server that knows it.
        extensions/auth/oauth-client-credentials#client-secrets
        test_machines.py::test_credentials_go_to_one_authorization_server_only 2025-11-25+
    A client of an organization declares the extension.
        extensions/auth/enterprise-managed-authorization#for-mcp-clients test_machines.py::test_what_clients_declare
        modern
    A client of an organization lets the person sign in at the identity provider, and keeps the ID token.
        extensions/auth/enterprise-managed-authorization#for-mcp-clients
        test_machines.py::test_a_person_signs_in_at_the_provider_once_for_all_servers 2025-11-25+
    A client of an organization gets its token by an ID-JAG, and asks nothing of the person at the server's issuer.
        extensions/auth/enterprise-managed-authorization#for-mcp-clients
        test_machines.py::test_the_identity_provider_vouches_for_a_person 2025-11-25+
    A client of an organization is told which provider has refused, and why.
        extensions/auth/enterprise-managed-authorization#for-mcp-clients
        test_machines.py::test_an_identity_provider_that_refuses_is_named 2025-11-25+
    """,
    tests="tests/auth/tokens/",
)
