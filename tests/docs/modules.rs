//! `ARCHITECTURE.md` states that the modules of a folder have no dependency cycles. This is checked with the imports of
//! every source file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item, UseTree};

use crate::{root, workspace::packages};

#[test]
fn no_modules_need_each_other_in_a_circle() -> Result<()> {
    let mut wrong = String::new();
    let mut imports = 0;
    for file in packages()?.into_iter().filter_map(|package| package.library) {
        let tree = Tree::read(&root().join(&file))?;
        let edges = tree.edges();
        imports += edges.len();
        for circle in circles(&tree.among_siblings(&edges)) {
            writeln!(wrong, "{}: these depend on each other:", file.display())?;
            let inside = |module: usize| tree.ancestors(module).into_iter().find(|one| circle.contains(one));
            for ((from, to), paths) in &edges {
                if matches!((inside(*from), inside(*to)), (Some(from), Some(to)) if from != to) {
                    writeln!(wrong, "  {} needs {}: {paths:?}", tree.0[*from].name, tree.0[*to].name)?;
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{wrong}");
    ensure!(imports > 1_000, "only {imports} imports were found: the test does not see them");
    Ok(())
}

#[test]
fn a_circle_is_found_whichever_way_it_is_written() {
    for (a, b, is_circle) in [
        ("use super::b::B;", "use super::a::A;", true),
        ("use crate::b::B;", "fn f() { crate::a::f() }", true),
        ("use crate::{b::{B, C}};", "use super::a; fn f() -> a::A {}", true),
        ("use super::B;", "use crate::A;", true),
        ("use super::*; fn f(b: B) {}", "use super::a::{self, A as X};", true),
        ("use super::b::B;", "use super::Own;", false),
        ("use super::b::B;", "#[cfg(test)] mod tests { use super::super::a::A; }", false),
        ("use super::b::B;", "use std::a::A; fn f() { a::A }", false),
    ] {
        let text = format!(
            "mod a {{ pub struct A; pub fn f() {{}} {a} }} mod b {{ pub struct B; pub struct C; {b} }} \
             pub use self::a::A; pub use b::B; struct Own;"
        );
        let mut tree = Tree::default();
        tree.put(syn::parse_str::<syn::File>(&text).unwrap().items, Path::new(""), "crate", None).unwrap();
        let found = circles(&tree.among_siblings(&tree.edges()));
        assert_eq!(!found.is_empty(), is_circle, "{a} and {b}: {found:?}");
    }
}

/// Names of a path, such as `crate::report::Report`.
type Names = Vec<String>;

/// Which module depends on which other one, and by which paths.
type Edges = BTreeMap<(usize, usize), BTreeSet<String>>;

/// All modules of a crate; the first is its root.
#[derive(Default)]
struct Tree(Vec<Module>);

#[derive(Default)]
struct Module {
    name: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// The names that it defines.
    items: BTreeSet<String>,
    /// The imports of the module, by their local names.
    imports: BTreeMap<String, Names>,
    globs: Vec<Names>,
    /// All paths in it.
    paths: Vec<Names>,
}

impl Tree {
    fn read(file: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.read_file(file, file.parent().context("a file is in a folder")?, "crate", None)?;
        Ok(tree)
    }

    /// Reads a file, whose modules are in `folder`.
    fn read_file(&mut self, file: &Path, folder: &Path, name: &str, parent: Option<usize>) -> Result<usize> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        self.put(parsed.items, folder, name, parent)
    }

    fn put(&mut self, items: Vec<Item>, folder: &Path, name: &str, parent: Option<usize>) -> Result<usize> {
        let id = self.0.len();
        self.0.push(Module { name: name.to_owned(), parent, ..Module::default() });
        for item in items.into_iter().filter(|item| !is_of_tests(item)) {
            match item {
                Item::Use(item) => self.0[id].import(&item.tree, &mut Vec::new()),
                Item::Mod(item) => {
                    let child = item.ident.to_string();
                    let (inner, name) = (folder.join(&child), format!("{name}::{child}"));
                    let child_id = match item.content {
                        Some((_, items)) => self.put(items, &inner, &name, Some(id))?,
                        None => self.read_file(&file_of(&child, folder, &item.attrs), &inner, &name, Some(id))?,
                    };
                    self.0[id].children.insert(child, child_id);
                }
                other => {
                    self.0[id].items.extend(name_of(&other));
                    paths(other.to_token_stream(), &mut self.0[id].paths);
                }
            }
        }
        Ok(id)
    }

    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (from, module) in self.0.iter().enumerate() {
            for path in &module.paths {
                if let Some(to) = self.find(from, path, 0).filter(|to| *to != from) {
                    edges.entry((from, to)).or_default().insert(path.join("::"));
                }
            }
        }
        edges
    }

    /// The module that defines the target of a path in the module `from`; `None` if it is in another crate.
    fn find(&self, from: usize, path: &[String], depth: usize) -> Option<usize> {
        /// How many imports are followed; two globs may refer to each other.
        const DEPTH_MAX: usize = 16;
        if depth > DEPTH_MAX {
            return None;
        }
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (0, &path[1..]),
            "self" => (from, &path[1..]),
            _ => (from, path),
        };
        let is_absolute = rest.len() < path.len() || rest.first()? == "super";
        while let Some(("super", after)) = rest.split_first().map(|(first, after)| (first.as_str(), after)) {
            (at, rest) = (self.0[at].parent?, after);
        }
        let mut is_first = !is_absolute;
        while let Some((name, after)) = rest.split_first() {
            let module = &self.0[at];
            if let Some(child) = module.children.get(name) {
                (at, rest, is_first) = (*child, after, false);
                continue;
            }
            if module.items.contains(name) {
                return Some(at);
            }
            if let Some(meant) = module.imports.get(name) {
                // The import itself may name another crate.
                if is_first && meant == path {
                    return None;
                }
                let whole = [meant, after].concat();
                return self.find(at, &whole, depth + 1).filter(|_| meant.first() != Some(name));
            }
            let mut named = module.globs.iter().filter_map(|glob| self.find(at, glob, depth + 1));
            let has = |one: &usize| *one != at && self.0[*one].has(name);
            return match named.find(has) {
                Some(other) => self.find(other, &[&["self".to_owned()], rest].concat(), depth + 1),
                None => (!is_first).then_some(at),
            };
        }
        Some(at)
    }

    /// A module and all its ancestors.
    fn ancestors(&self, module: usize) -> Vec<usize> {
        std::iter::successors(Some(module), |one| self.0[*one].parent).collect()
    }

    /// The dependencies between modules with the same parent. A dependency of a descendant counts for the module.
    fn among_siblings(&self, edges: &Edges) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut lifted: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (from, to) in edges.keys() {
            let [from, to] = [*from, *to].map(|module| self.ancestors(module).into_iter().rev());
            if let Some((from, to)) = from.zip(to).find(|(from, to)| from != to) {
                lifted.entry(from).or_default().insert(to);
            }
        }
        lifted
    }
}

impl Module {
    fn import(&mut self, tree: &UseTree, before: &mut Names) {
        let mut put = |name: String, path: &Names| {
            self.imports.insert(name, path.clone());
            self.paths.push(path.clone());
        };
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                put(before.last().cloned().unwrap_or_default(), before);
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                put(name.clone(), &[before.as_slice(), &[name]].concat());
            }
            UseTree::Rename(rename) => {
                put(rename.rename.to_string(), &[before.as_slice(), &[rename.ident.to_string()]].concat());
            }
            UseTree::Glob(_) => self.globs.push(before.clone()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.items.contains(name) || self.children.contains_key(name) || self.imports.contains_key(name)
    }
}

/// The file of a module.
fn file_of(name: &str, folder: &Path, attributes: &[Attribute]) -> PathBuf {
    let given = attributes.iter().find(|one| one.path().is_ident("path")).map(|one| one.meta.to_token_stream());
    if let Some(given) = given {
        return folder.join(given.to_string().split('"').nth(1).unwrap_or_default());
    }
    let file = folder.join(format!("{name}.rs"));
    if file.exists() { file } else { folder.join(name).join("mod.rs") }
}

/// Tests may import anything.
fn is_of_tests(item: &Item) -> bool {
    let attributes = match item {
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        _ => return false,
    };
    let words = |one: &Attribute| one.meta.to_token_stream().to_string();
    attributes.iter().any(|one| one.path().is_ident("cfg") && words(one).contains("test"))
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Every path, including those in macros. A single name in lower case is left out, because it may be a variable.
fn paths(tokens: TokenStream, found: &mut Vec<Names>) {
    let (mut path, mut colons) = (Names::new(), 0);
    let mut end = |path: &mut Names| {
        let path = std::mem::take(path);
        let is_type = |name: &String| name.starts_with(char::is_uppercase);
        if path.len() > 1 || path.iter().any(is_type) {
            found.push(path);
        }
    };
    let mut groups = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 {
                    end(&mut path);
                }
                (path, colons) = ([path, vec![name.to_string()]].concat(), 0);
            }
            TokenTree::Punct(sign) if sign.as_char() == ':' => colons += 1,
            other => {
                end(&mut path);
                colons = 0;
                if let TokenTree::Group(group) = other {
                    groups.push(group.stream());
                }
            }
        }
    }
    end(&mut path);
    for group in groups {
        paths(group, found);
    }
}

/// The groups of nodes that can all be reached from each other.
fn circles(edges: &BTreeMap<usize, BTreeSet<usize>>) -> Vec<BTreeSet<usize>> {
    let reached = |from: usize| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(node) = next.pop() {
            let new = edges.get(&node).into_iter().flatten().filter(|to| seen.insert(**to));
            next.extend(new.copied().collect::<Vec<_>>());
        }
        seen
    };
    let reach: BTreeMap<usize, BTreeSet<usize>> = edges.keys().map(|node| (*node, reached(*node))).collect();
    let mut found: Vec<BTreeSet<usize>> = Vec::new();
    for (node, to) in reach.iter().filter(|(node, to)| to.contains(node)) {
        if found.iter().any(|circle| circle.contains(node)) {
            continue;
        }
        found.push(to.iter().copied().filter(|one| reach.get(one).is_some_and(|back| back.contains(node))).collect());
    }
    found
}
