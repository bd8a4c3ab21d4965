"""``basic/authorization``, what authorization servers do: `trio_mcp.auth.testing` has one, for tests and demos."""

from __future__ import annotations

from tests.requirements.model import Topic

topic = Topic("authorization, authorization servers")

# Until 2025-03-26 the server itself was the authorization server. HTTPS is left to what serves the application, and
# what a person is shown to those who write one for production.
topic.held(
    """
    An authorization server describes itself by OAuth and OpenID Connect, at each of the places where it is looked for.
        basic/authorization#overview test_metadata_is_at_each_of_its_places 2025-03-26+
    An authorization server gives tokens for the resource that was asked for.
        basic/authorization#resource-parameter-implementation test_a_code_becomes_tokens_for_the_resource 2025-06-18+
    An authorization server wants PKCE with S256.
        basic/authorization/security-considerations#authorization-code-protection
        test_a_bad_authorization_request_is_told_to_the_client 2025-03-26+
    An authorization server names itself in its redirections, also with an error.
        basic/authorization#authorization-response-validation test_a_bad_authorization_request_is_told_to_the_client
        modern
    An authorization server redirects only to what the client has registered, but for the port on loopback.
        basic/authorization/security-considerations#open-redirection
        test_nothing_is_redirected_to_where_no_client_is 2025-03-26+
    An authorization server accepts a code once.
        basic/authorization/security-considerations#authorization-code-protection
        test_a_code_is_used_once_and_its_second_use_revokes_what_it_gave 2025-03-26+
    An authorization server gives a new refresh token for each one that is used.
        basic/authorization/security-considerations#token-theft
        test_a_refresh_token_rotates_and_its_reuse_ends_the_family 2025-03-26+
    An authorization server's access tokens expire, and can be revoked.
        basic/authorization/security-considerations#token-theft test_tokens_expire_and_are_revoked 2025-03-26+
    An authorization server lets clients register.
        basic/authorization/client-registration#dynamic-client-registration test_a_client_registers 2025-03-26+
    An authorization server registers only redirect URIs on loopback or https, as the application type has them.
        basic/authorization/client-registration#application-type-and-redirect-uri-constraints
        test_a_bad_registration_is_refused 2025-03-26+
    An authorization server accepts the URL of a client's document, if it names itself and the redirect URI.
        basic/authorization/client-registration#implementation-requirements
        test_a_client_may_be_the_url_of_its_document 2025-11-25+
    """,
    tests="tests/auth/test_authorization_server.py::",
)
