"""``basic/authorization``, what servers do: checked by the tests of authorization, which need an issuer of tokens."""

from __future__ import annotations

from tests.requirements.model import Topic

topic = Topic("authorization, servers")

# None of it is in 2024-11-05.
topic.held(
    """
    A server that is protected responds with 401 to a request without a token.
        basic/authorization#overview resource/test_endpoint.py::test_row 2025-03-26+
    A server asks for the token of every HTTP request, whatever session it belongs to.
        basic/authorization#token-requirements
        server/test_gate.py::test_without_a_token_every_way_in_is_closed_and_no_body_is_read 2025-03-26+
    A server takes no token from the query of a URL.
        basic/authorization#token-requirements resource/test_table.py::test_row 2025-03-26+
    A server validates each token before it does anything for the request.
        basic/authorization#token-handling resource/test_endpoint.py::test_row 2025-03-26+
    A server responds with 401 to a token that is invalid or has expired.
        basic/authorization#token-handling resource/test_tokens.py::test_bad_token 2025-03-26+
    A server responds with 401 to a token that another issuer has issued.
        basic/authorization#token-handling resource/test_verifiers.py::test_an_issuer_speaks_for_itself 2025-03-26+
    A server responds with 400 to credentials in the wrong form, 401 to wrong ones, and 403 to too few scopes.
        basic/authorization#error-handling resource/test_table.py::test_row 2025-03-26+
    A server enforces the end of a token's life, also if it has seen the token before.
        basic/authorization#token-handling
        resource/test_verifiers.py::test_token_is_remembered_for_a_while 2025-03-26+
    A server fetches metadata and keys of an issuer over https only, but for loopback.
        basic/authorization/security-considerations#communication-security
        resource/test_verifiers.py::test_bad_metadata 2025-03-26+
    A server publishes metadata that name at least one authorization server.
        basic/authorization/authorization-server-discovery#authorization-server-location
        resource/test_settings.py::test_metadata 2025-06-18+
    A server cannot be protected without an authorization server.
        basic/authorization/authorization-server-discovery#authorization-server-location
        resource/test_settings.py::test_bad_settings 2025-06-18+
    A server's metadata is at the root of the origin, with the path of the server at its end, and without it.
        basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
        resource/test_settings.py::test_metadata 2025-06-18+
    A server that is mounted below a path has its metadata at the root of the origin nonetheless.
        basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
        resource/test_settings.py::test_metadata_app 2025-06-18+
    A server names the URL of its metadata in every challenge.
        basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
        resource/test_table.py::test_row 2025-06-18+
    A server accepts no token that was issued for another server, or for none.
        basic/authorization#token-handling resource/test_tokens.py::test_bad_token 2025-06-18+
    A server accepts the scheme and the host of its URL in capitals.
        basic/authorization#canonical-server-uri resource/test_tokens.py::test_good_token 2025-06-18+
    A server's URL has no fragment.
        basic/authorization#canonical-server-uri resource/test_settings.py::test_bad_settings 2025-06-18+
    A server hands a token on to nothing that it runs, so it can't be sent elsewhere.
        basic/authorization/security-considerations#access-token-privilege-restriction
        server/test_gate.py::test_handlers_get_the_principal_and_no_credentials 2025-06-18+
    A server says in the challenge which scopes a request needs.
        basic/authorization#scope-selection-strategy resource/test_table.py::test_row 2025-11-25+
    A server responds with 403 and insufficient_scope to a token without the scopes of the operation.
        basic/authorization#runtime-insufficient-scope-errors resource/test_endpoint.py::test_row 2025-11-25+
    A server names all scopes of an operation in one challenge.
        basic/authorization#runtime-insufficient-scope-errors
        server/test_scopes.py::test_a_modern_request_needs_its_scopes_and_names_all_of_them 2025-11-25+
    A server names the scopes of a whole batch in one challenge, and does nothing of it.
        basic/authorization#scope-challenge-handling
        resource/test_endpoint.py::test_batch_with_one_missing_scope_is_refused_whole 2025-03-26
    A server accepts a broader scope where a narrower one is needed.
        basic/authorization#step-up-authorization-flow resource/test_table.py::test_row modern
    A server asks for no offline_access, in metadata or challenges.
        basic/authorization#refresh-tokens resource/test_settings.py::test_bad_settings modern
    A server does not take a session for a proof of who makes a request.
        basic/authorization/security-considerations#access-token-privilege-restriction
        server/test_owners.py::test_a_session_of_somebody_else_is_like_none 2025-03-26+
    A server keeps what it has of one principal from all others.
        basic/authorization/security-considerations#access-token-privilege-restriction
        server/test_owners.py::test_a_cache_keeps_principals_apart 2025-03-26+
    A server accepts a token that is bound to a key only with a proof of that key, made for this request.
        basic/authorization#mcp-authorization-extensions resource/test_proofs.py::test_bad_proof 2025-11-25+
    A server accepts each proof once.
        basic/authorization#mcp-authorization-extensions
        resource/test_proofs.py::test_proof_works_once_as_long_as_it_could 2025-11-25+
    A server may ask for a nonce in each proof, and renews it in time.
        basic/authorization#mcp-authorization-extensions resource/test_proofs.py::test_nonces 2025-11-25+
    A server says in a 403 which error it is, where its metadata is, and, for people, what is missing.
        basic/authorization#runtime-insufficient-scope-errors resource/test_table.py::test_row 2025-11-25+
    A server chooses the scopes of a challenge in one way: all that the request needs, with those that each one needs.
        basic/authorization#runtime-insufficient-scope-errors
        server/test_scopes.py::test_what_every_request_needs_is_part_of_each_challenge 2025-11-25+
    A server can authenticate every connection, whatever it carries.
        basic/transports/streamable-http
        server/test_gate.py::test_without_a_token_every_way_in_is_closed_and_no_body_is_read 2025-03-26+
    A server takes an answer to a question only from the principal that it asked.
        basic/patterns/mrtr#server-requirements-basic-workflow
        server/test_owners.py::test_a_question_is_answered_by_the_one_who_was_asked modern
    A server on stdio or in memory judges no scopes.
        basic/authorization#protocol-requirements server/test_scopes.py::test_in_memory_scopes_do_not_hold 2025-03-26+
    A server ends a stream with the token that it was opened with.
        basic/authorization#token-handling
        server/test_expiry.py::test_the_stream_of_a_session_ends_and_loses_nothing legacy
    A server ends a subscription with the token that it was opened with.
        basic/authorization#token-handling
        server/test_expiry.py::test_listening_ends_with_a_result_when_the_token_does modern
    A server accepts a token only as what it was issued as: no ID token, no proof, no assertion.
        basic/authorization/security-considerations#access-token-privilege-restriction
        resource/test_tokens.py::test_bad_token 2025-06-18+
    A server shows neither tokens nor its own secret.
        basic/authorization/security-considerations#token-theft resource/test_settings.py::test_secrets_are_not_shown
        2025-06-18+
    """,
    tests="tests/auth/",
)
