"""``basic/authorization``, what clients do: checked by the tests of authorization, which need more than a transport."""

from __future__ import annotations

from tests.requirements.model import Topic

topic = Topic("authorization, clients")

# What clients do. None of it is on 2024-11-05.
topic.held(
    """
    A client finds the authorization server through the resource metadata.
        basic/authorization#overview rules/test_metadata.py::test_ways_to_the_metadata 2025-06-18+
    A client uses the metadata URL of the challenge, else the well-known places: at the path, then at the root.
        basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
        rules/test_metadata.py::test_where_resource_metadata_may_be 2025-11-25+
    A client reads every well-formed challenge, and no malformed one harms it.
        basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
        rules/test_challenges.py::test_table 2025-06-18+
    A client takes nothing for a parameter that another one's value contains.
        basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
        rules/test_challenges.py::test_a_quoted_string_hides_all_that_is_in_it 2025-06-18+
    A client responds to a 401 with a login, and repeats the request.
        basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements
        engine/test_oauth.py::test_a_person_signs_in_once_and_the_store_does_the_rest 2025-03-26+
    A client uses only metadata whose resource is the server, or a parent of it on the same origin.
        basic/authorization#canonical-server-uri rules/test_urls.py::test_resources 2025-06-18+
    A client reads both kinds of metadata of authorization servers, OAuth and OpenID Connect.
        basic/authorization#overview rules/test_metadata.py::test_ways_to_the_metadata 2025-11-25+
    A client looks for metadata in three places where the issuer has a path, in two where it has none, in order.
        basic/authorization/authorization-server-discovery#authorization-server-metadata-discovery
        rules/test_metadata.py::test_where_an_issuers_metadata_may_be 2025-11-25+
    A client does not use the metadata of another issuer than the one that was advertised.
        basic/authorization/authorization-server-discovery#authorization-server-metadata-discovery
        rules/test_metadata.py::test_hostile_metadata modern
    A client may choose among the authorization servers of a resource.
        basic/authorization/authorization-server-discovery#authorization-server-location
        rules/test_metadata.py::test_several_authorization_servers 2025-06-18+
    A client keeps what it has of one authorization server from all others.
        basic/authorization/authorization-server-discovery#authorization-server-location
        engine/test_oauth.py::test_another_authorization_server_gets_nothing_of_the_old_one modern
    A client without resource metadata looks for metadata at the server's own origin, and says which revision it means.
        basic/authorization#server-metadata-discovery
        rules/test_metadata.py::test_without_resource_metadata_there_is_no_resource 2025-03-26
    A client falls back to the default endpoints only after it has looked for metadata.
        basic/authorization#fallbacks-for-servers-without-metadata-discovery
        rules/test_metadata.py::test_when_there_is_no_way_back_to_2025_03_26 2025-03-26
    A client prefers the id that it was given, then its metadata document, then a registration.
        basic/authorization/client-registration rules/test_registration.py::test_the_order 2025-11-25+
    A client that has no id and can get none tells what to set.
        basic/authorization/client-registration rules/test_registration.py::test_when_no_way_is_left 2025-11-25+
    A client can be given an id, and a secret or a key.
        basic/authorization/client-registration#pre-registration rules/test_registration.py::test_methods 2025-03-26+
    A client's metadata document has an https URL with a path.
        basic/authorization/client-registration#implementation-requirements
        rules/test_registration.py::test_urls_of_a_clients_document 2025-11-25+
    A client sends the URL of its document only where the authorization server accepts such ids.
        basic/authorization/client-registration#advertising-cimd-support
        rules/test_registration.py::test_the_order 2025-11-25+
    A client can register itself.
        basic/authorization/client-registration#dynamic-client-registration
        rules/test_registration.py::test_what_a_registration_asks_for 2025-03-26+
    A client that registers says of which application type it is: native on loopback, else web.
        basic/authorization/client-registration#application-type-and-redirect-uri-constraints
        rules/test_registration.py::test_the_application_type modern
    A client whose registration is refused says why, and what to do.
        basic/authorization/client-registration#application-type-and-redirect-uri-constraints
        rules/test_registration.py::test_registrations_that_come_to_nothing modern
    A client's registration is for one issuer, and it registers anew at another.
        basic/authorization/client-registration#authorization-server-binding
        engine/test_oauth.py::test_another_authorization_server_gets_nothing_of_the_old_one modern
    A client known by its metadata document registers nowhere.
        basic/authorization/client-registration#authorization-server-binding
        engine/test_oauth.py::test_its_metadata_document_is_what_the_client_is_known_by modern
    A client that was given its id for one issuer refuses to use it at another.
        basic/authorization/client-registration#authorization-server-binding
        engine/test_oauth.py::test_a_client_of_one_authorization_server_is_not_taken_to_another modern
    A client that wants refresh tokens registers for them.
        basic/authorization#refresh-tokens rules/test_registration.py::test_what_a_registration_asks_for modern
    A client asks for offline_access only where the authorization server offers it.
        basic/authorization#refresh-tokens rules/test_scopes.py::test_selection modern
    A client asks for the scopes of the challenge, else for those of the resource metadata, else for none.
        basic/authorization#scope-selection-strategy rules/test_scopes.py::test_selection 2025-11-25+
    A client expects no relation between the scopes of a challenge and those of the metadata.
        basic/authorization#scope-selection-strategy rules/test_scopes.py::test_selection 2025-11-25+
    A client whose scopes don't suffice asks for more, together with those that it had.
        basic/authorization#step-up-authorization-flow
        engine/test_oauth.py::test_more_scopes_are_asked_for_with_those_that_there_were 2025-11-25+
    A client asks for more scopes only a few times in one operation, and never twice for the same.
        basic/authorization#step-up-authorization-flow
        rules/test_scopes.py::test_a_server_that_is_never_content 2025-11-25+
    A client sends the resource in every authorization request.
        basic/authorization#resource-parameter-implementation
        rules/test_authorization.py::test_the_authorization_request 2025-06-18+
    A client sends the resource in every token request.
        basic/authorization#resource-parameter-implementation
        tokens/test_requests.py::test_the_form_of_each_grant 2025-06-18+
    A client sends the resource byte for byte as the server publishes it.
        basic/authorization#resource-parameter-implementation
        rules/test_metadata.py::test_the_resource_is_kept_byte_for_byte 2025-06-18+
    A client takes scheme and host of a resource in capitals for the same.
        basic/authorization#canonical-server-uri rules/test_urls.py::test_resources 2025-06-18+
    A client records the issuer, the verifier and the state of a login together, before the browser opens.
        basic/authorization#authorization-response-validation
        rules/test_authorization.py::test_nothing_is_used_twice modern
    A client compares the issuer in a redirection character by character, with what the metadata says of it.
        basic/authorization#authorization-response-validation
        rules/test_authorization.py::test_whose_redirection_it_is modern
    A client neither shows nor follows an error in a redirection of another issuer.
        basic/authorization#authorization-response-validation
        rules/test_authorization.py::test_whose_redirection_it_is modern
    A client uses PKCE with S256.
        basic/authorization/security-considerations#authorization-code-protection
        rules/test_authorization.py::test_the_challenge_of_a_verifier 2025-03-26+
    A client refuses an authorization server whose metadata doesn't list PKCE.
        basic/authorization/security-considerations#authorization-code-protection
        rules/test_authorization.py::test_pkce 2025-11-25+
    A client discards a redirection without the state that it sent.
        basic/authorization/security-considerations#open-redirection
        rules/test_authorization.py::test_a_redirection_of_another_flow 2025-06-18+
    A client's redirect URIs are on loopback or https.
        basic/authorization/security-considerations#communication-security
        rules/test_registration.py::test_redirect_uris 2025-03-26+
    A client sends nothing to endpoints that are not https, but for loopback.
        basic/authorization/security-considerations#communication-security
        rules/test_urls.py::test_urls_that_are_refused 2025-03-26+
    A client refuses a redirection without the issuer that was announced, and goes on where none was.
        basic/authorization#authorization-response-validation
        rules/test_authorization.py::test_whose_redirection_it_is modern
    A client tries every place of an issuer's metadata before it gives up.
        basic/authorization/authorization-server-discovery#authorization-server-metadata-discovery
        rules/test_metadata.py::test_where_an_issuers_metadata_may_be 2025-11-25+
    A client looks for PKCE in the metadata of OpenID Connect, too.
        basic/authorization/security-considerations#authorization-code-protection
        rules/test_authorization.py::test_pkce 2025-11-25+
    """,
    tests="tests/auth/",
)

# What keeps and carries tokens, on the client's side.
topic.held(
    """
    A client's authorization is for HTTP: elsewhere it is refused, and the error names the environment.
        basic/authorization#protocol-requirements
        seam/test_transports.py::test_what_has_no_http_refuses_it_and_names_the_environment 2025-03-26+
    A client sends its token in the Authorization field of every request.
        basic/authorization#token-requirements seam/test_exchanges.py::test_a_refused_request_is_sent_again_with_a_token
        2025-03-26+
    A client never puts a token into a URL, and sends it to no other origin.
        basic/authorization#token-requirements seam/test_exchanges.py::test_a_redirection_to_another_origin_gets_nothing
        2025-03-26+
    A client sends a server only tokens of that server's authorization server.
        basic/authorization#token-handling
        engine/test_oauth.py::test_another_authorization_server_gets_nothing_of_the_old_one 2025-06-18+
    A client refreshes an expired token without asking a person.
        basic/authorization#refresh-tokens engine/test_oauth.py::test_64_calls_at_expiry_refresh_once 2025-03-26+
    A client does without a refresh token, if it is given none.
        basic/authorization#refresh-tokens tokens/test_answers.py::test_a_login_keeps_what_a_refresh_does_not_mention
        modern
    A client stores its tokens so that only their owner can read them.
        basic/authorization/security-considerations#token-theft io/test_stores.py::test_files_are_their_owner_s_alone
        2025-03-26+
    A client shows no token or secret, even where a server repeats it.
        basic/authorization#refresh-tokens
        tokens/test_answers.py::test_what_the_server_repeats_of_our_secrets_is_not_shown 2025-03-26+
    A client that is a program of its own asks for more scopes where the server wants them.
        basic/authorization#step-up-authorization-flow
        tokens/test_machines.py::test_more_scopes_are_asked_for_when_the_server_wants_them 2025-11-25+
    A proxy passes no token of its client on.
        basic/authorization/security-considerations#access-token-privilege-restriction
        seam/test_transports.py::test_a_proxy_passes_no_credentials_on 2025-06-18+
    A client that asks a person listens on loopback only.
        basic/authorization/security-considerations#communication-security io/test_asking.py::test_on_loopback_alone
        2025-03-26+
    """,
    tests="tests/auth/",
)
