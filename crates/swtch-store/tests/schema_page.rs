//! `docs/SCHEMA.md` is generated and kept in the tree, so that it can be read without building.

use std::fs;
use std::path::Path;

#[test]
fn the_page_is_as_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SCHEMA.md");
    let page = swtch_store::schema_markdown();
    if std::env::var_os("SWTCH_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/SCHEMA.md is stale; renew it: SWTCH_BLESS=1 cargo test -p swtch-store --test schema_page"
    );
}
