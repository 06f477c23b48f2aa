//! The parsed source files of a crate, without what is compiled only for its tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, ImplItem, ImplItemFn, Item, ItemFn, ItemMod, LitStr, Macro, UseTree,
    visit::{self, Visit},
};

/// What the rules need to know of a source file.
#[derive(Default)]
pub struct Source {
    /// Path relative to the repository.
    pub path: String,
    /// Its module path from the crate's root, whose own is empty. A binary beside a library is
    /// `main`.
    pub module: Vec<String>,
    /// Every module that the file is or contains.
    pub modules: Vec<Vec<String>>,
    pub imports: Vec<Import>,
    pub mentions: Vec<Mention>,
    pub texts: Vec<String>,
    /// Flags that have an environment variable.
    pub settings: Vec<String>,
    /// The arguments of tracing's macros, without spaces.
    pub logged: Vec<String>,
    /// Modules that are compiled only for tests.
    tests: Vec<Vec<String>>,
}

/// The macros of tracing, which also has one for spans of each level, such as `info_span!`.
const TRACING: [&str; 6] = ["error", "warn", "info", "debug", "trace", "event"];

/// An import, with the name that it has in the file.
pub struct Import {
    /// The inline module that contains it.
    pub module: Vec<String>,
    pub path: Vec<String>,
    /// `None` for a glob and for `as _`.
    pub name: Option<String>,
    /// Whether it is re-exported.
    pub is_offered: bool,
}

/// A path that a file uses outside its imports.
pub struct Mention {
    /// The inline module that contains it.
    pub module: Vec<String>,
    /// The function that contains it, or empty outside functions.
    pub function: String,
    pub path: Vec<String>,
}

impl Source {
    pub fn parse(path: &str, module: &[&str], text: &str) -> Self {
        let syntax = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let module: Vec<String> = module.iter().map(ToString::to_string).collect();
        let source = Self {
            path: path.to_owned(),
            modules: vec![module.clone()],
            module: module.clone(),
            ..Self::default()
        };
        let function = String::new();
        let mut reader = Reader {
            module,
            function,
            source,
        };
        reader.visit_file(&syntax);
        reader.source
    }

    /// Every path that the file uses, in an import or elsewhere.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        let imports = self.imports.iter().map(|import| &import.path);
        let mentions = self.mentions.iter().map(|mention| &mention.path);
        imports.chain(mentions).map(|path| path.join("::"))
    }

    /// The paths that one of its functions uses outside imports.
    pub fn named_in(&self, function: &str) -> impl Iterator<Item = String> {
        let mentions = self.mentions.iter();
        let inside = mentions.filter(move |mention| mention.function == function);
        inside.map(|mention| mention.path.join("::"))
    }

    /// Whether it is one of these, below `src`: a file such as `grpc.rs`, or any file in a folder,
    /// `grpc/**`.
    pub fn is_one_of(&self, names: &[&str]) -> bool {
        let module = self.module.join("/");
        names.iter().any(|name| match name.strip_suffix("/**") {
            Some(folder) => module.starts_with(&format!("{folder}/")),
            None => name.strip_suffix(".rs") == Some(&module),
        })
    }
}

/// Every file of the crate in `folder`, except its tests.
pub fn sources(root: &Path, folder: &str) -> Vec<Source> {
    let src = root.join(folder).join("src");
    let has_library = src.join("lib.rs").exists();
    let mut sources: Vec<Source> = rust_files(&src)
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file).expect("a source file is readable");
            let path = file.strip_prefix(root).expect("it is in the repository");
            let inner = file.strip_prefix(&src).expect("it is below src");
            let module = module_of(inner, has_library);
            let module: Vec<&str> = module.iter().map(String::as_str).collect();
            Source::parse(&path.display().to_string(), &module, &text)
        })
        .collect();
    let tests: Vec<_> = sources
        .iter()
        .flat_map(|source| source.tests.clone())
        .collect();
    sources.retain(|source| !tests.iter().any(|test| source.module.starts_with(test)));
    sources
}

/// Every Rust file in a folder and its subfolders.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder is readable").path())
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    files.sort();
    files
}

fn module_of(path: &Path, has_library: bool) -> Vec<String> {
    let path = path.with_extension("");
    let names = path
        .components()
        .map(|name| name.as_os_str().to_string_lossy().into_owned());
    let names: Vec<String> = names.collect();
    match names.as_slice() {
        [root] if root == "lib" || root == "main" && !has_library => Vec::new(),
        [folder @ .., last] if last == "mod" => folder.to_vec(),
        _ => names,
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list();
        list.is_ok_and(|list| list.path.is_ident("cfg") && list.tokens.to_string() == "test")
    })
}

struct Reader {
    module: Vec<String>,
    function: String,
    source: Source,
}

impl Reader {
    fn mention(&mut self, path: Vec<String>) {
        self.source.mentions.push(Mention {
            module: self.module.clone(),
            function: self.function.clone(),
            path,
        });
    }

    fn import(&mut self, path: &[String], tree: &UseTree, is_offered: bool) {
        let (path, name) = match tree {
            UseTree::Path(inner) => {
                let path = [path, &[inner.ident.to_string()]].concat();
                return self.import(&path, &inner.tree, is_offered);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(path, tree, is_offered);
                }
                return;
            }
            UseTree::Name(used) if used.ident == "self" => (path.to_vec(), path.last().cloned()),
            UseTree::Name(used) => {
                let name = used.ident.to_string();
                ([path, std::slice::from_ref(&name)].concat(), Some(name))
            }
            UseTree::Rename(used) => {
                let name = Some(used.rename.to_string()).filter(|name| name != "_");
                ([path, &[used.ident.to_string()]].concat(), name)
            }
            _ => (path.to_vec(), None),
        };
        self.source.imports.push(Import {
            module: self.module.clone(),
            path,
            name,
            is_offered,
        });
    }

    fn read_macro(&mut self, name: &str, tokens: TokenStream) {
        if TRACING.contains(&name.trim_end_matches("_span")) {
            self.source.logged.extend(arguments(tokens.clone()));
        }
        self.read_tokens(tokens);
    }

    /// Reads paths, strings and inner macros from a macro's tokens.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut invoked = None;
        for token in tokens {
            let name = invoked.take();
            match token {
                TokenTree::Punct(sign) if sign.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(name) => {
                    if colons != 2 && !path.is_empty() {
                        self.mention(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                    continue;
                }
                TokenTree::Punct(sign) if sign.as_char() == '!' => invoked = path.last().cloned(),
                TokenTree::Group(group) => match name {
                    Some(name) => self.read_macro(&name, group.stream()),
                    None => self.read_tokens(group.stream()),
                },
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str::<LitStr>(&literal.to_string()) {
                        self.source.texts.push(text.value());
                    }
                }
                TokenTree::Punct(_) => {}
            }
            colons = 0;
            if !path.is_empty() {
                self.mention(std::mem::take(&mut path));
            }
        }
        if !path.is_empty() {
            self.mention(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        } else if let Item::Mod(tests) = item {
            let name = vec![tests.ident.to_string()];
            self.source.tests.push([self.module.clone(), name].concat());
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        let outer = std::mem::replace(&mut self.function, item.sig.ident.to_string());
        visit::visit_impl_item_fn(self, item);
        self.function = outer;
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let outer = std::mem::replace(&mut self.function, item.sig.ident.to_string());
        visit::visit_item_fn(self, item);
        self.function = outer;
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Fn(function) => function.attrs.as_slice(),
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_none() {
            return;
        }
        self.module.push(item.ident.to_string());
        self.source.modules.push(self.module.clone());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_offered = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&[], &item.tree, is_offered);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.mention(names.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast Macro) {
        visit::visit_macro(self, invoked);
        let name = invoked.path.segments.last().expect("a macro has a name");
        self.read_macro(&name.ident.to_string(), invoked.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Ok(list) = attribute.meta.require_list()
            && !list.path.is_ident("doc")
        {
            if list.path.is_ident("arg") && has_variable(list.tokens.clone()) {
                self.source.settings.push(list.tokens.to_string());
            }
            self.read_tokens(list.tokens.clone());
        }
    }

    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        self.source.texts.push(text.value());
    }
}

/// The arguments of a macro, without spaces.
fn arguments(tokens: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_comma =
        |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == ',');
    let arguments = tokens.split(is_comma);
    arguments
        .map(|argument| {
            argument
                .iter()
                .cloned()
                .collect::<TokenStream>()
                .to_string()
        })
        .map(|argument| argument.replace(' ', ""))
        .collect()
}

fn has_variable(flag: TokenStream) -> bool {
    flag.into_iter()
        .any(|token| matches!(token, TokenTree::Ident(name) if name == "env"))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
