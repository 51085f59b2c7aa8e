//! The page, embedded when the program was built; without it, a page that says how to build it.

include!(concat!(env!("OUT_DIR"), "/web_assets.rs"));

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Its path below the page's address.
    pub path: &'static str,
    /// Contents of the file, as it is served.
    pub bytes: &'static [u8],
}

const STUB: Asset = Asset {
    path: "index.html",
    bytes: include_bytes!("stub.html"),
};

/// True if the page was there when the program was built.
pub const IS_BUILT: bool = !ASSETS.is_empty();

/// The file at a path.
pub fn find(path: &str) -> Option<Asset> {
    if !IS_BUILT {
        return (path == STUB.path).then_some(STUB);
    }
    ASSETS.iter().copied().find(|asset| asset.path == path)
}

impl Asset {
    /// The MIME type of the file, by its ending.
    pub fn media_type(&self) -> &'static str {
        match self.path.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }
}
