#[path = "http_api/on_response.rs"]
mod on_response;
#[path = "http_api/rule_fields.rs"]
mod rule_fields;
