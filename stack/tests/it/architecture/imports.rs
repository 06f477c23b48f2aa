//! Which files of a crate take names from which others, and the cycles among them.
//!
//! A name belongs to the file that defines it, even if others re-export it. A module and the files
//! in its folder may depend on each other: they are one unit in several files. All other
//! dependencies go one way, and no file takes anything from the crate's root, which knows them
//! all.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::source::{Import, Source};

/// Longest chain of re-exports that is followed.
const OFFERS_MAX: usize = 8;

/// The cycles of files that need each other, each with the imports that cause it.
pub fn circles(sources: &[Source]) -> Vec<String> {
    let needs = needs(sources);
    let reached: Vec<BTreeSet<usize>> =
        (0..sources.len()).map(|from| reach(from, &needs)).collect();
    let mut found = BTreeMap::new();
    for from in 0..sources.len() {
        let circle: BTreeSet<usize> = reached[from]
            .iter()
            .copied()
            .filter(|to| reached[*to].contains(&from))
            .collect();
        if circle.len() > 1 {
            found.entry(circle).or_insert(());
        }
    }
    found
        .keys()
        .map(|circle| tell(circle, &needs, sources))
        .collect()
}

/// For each file: the files that it needs, each with the names that it takes.
type Needs = Vec<BTreeMap<usize, BTreeSet<String>>>;

fn reach(from: usize, needs: &Needs) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in needs[file].keys() {
            if reached.insert(*next) {
                open.push(*next);
            }
        }
    }
    reached
}

fn tell(circle: &BTreeSet<usize>, needs: &Needs, sources: &[Source]) -> String {
    let mut lines = Vec::new();
    for from in circle {
        for (to, names) in needs[*from].iter().filter(|(to, _)| circle.contains(to)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let (from, to) = (&sources[*from].path, &sources[*to].path);
            lines.push(format!("{from} takes {} from {to}", names.join(", ")));
        }
    }
    lines.join("\n")
}

fn needs(sources: &[Source]) -> Needs {
    let names = Names::of(sources);
    let mut needs: Needs = vec![BTreeMap::new(); sources.len()];
    for (file, source) in sources.iter().enumerate() {
        for (module, path) in taken(source) {
            let Some(home) = names.home(module, path, OFFERS_MAX) else {
                continue;
            };
            let (own, other) = (&source.module, &sources[home].module);
            let is_own_module = !other.is_empty() && own.starts_with(other);
            if home != file && !is_own_module {
                let name = path.last().cloned().unwrap_or_default();
                needs[file].entry(home).or_default().insert(name);
            }
        }
    }
    needs
}

/// What a file takes: its imports, except those that it only re-exports, and the paths that it
/// names.
fn taken(source: &Source) -> impl Iterator<Item = (&[String], &[String])> {
    let is_used = |import: &Import| {
        let first = source
            .mentions
            .iter()
            .filter_map(|mention| mention.path.first());
        !import.is_offered
            || first
                .into_iter()
                .any(|first| Some(first) == import.name.as_ref())
    };
    let imports = source.imports.iter().filter(move |import| is_used(import));
    let imports = imports.map(|import| (import.module.as_slice(), import.path.as_slice()));
    let mentions = source.mentions.iter();
    let mentions = mentions.map(|mention| (mention.module.as_slice(), mention.path.as_slice()));
    imports.chain(mentions)
}

/// Every module of a crate with its file, and every import with its path.
struct Names<'a> {
    modules: HashMap<&'a [String], usize>,
    imports: HashMap<(&'a [String], &'a str), &'a [String]>,
}

impl<'a> Names<'a> {
    fn of(sources: &'a [Source]) -> Self {
        let mut names = Self {
            modules: HashMap::new(),
            imports: HashMap::new(),
        };
        for (file, source) in sources.iter().enumerate() {
            for module in &source.modules {
                names.modules.insert(module, file);
            }
            for import in &source.imports {
                if let Some(name) = &import.name {
                    let place = (import.module.as_slice(), name.as_str());
                    names.imports.insert(place, &import.path);
                }
            }
        }
        names
    }

    /// The file that defines what `path` names in `module`, or `None` if no file of the crate
    /// does, or if `path` is a whole file.
    fn home(&self, module: &[String], path: &[String], offers_left: usize) -> Option<usize> {
        let path = self.absolute(module, path, offers_left)?;
        let depth = (0..=path.len())
            .rev()
            .find(|depth| self.modules.contains_key(&path[..*depth]))?;
        let (home, rest) = path.split_at(depth);
        let name = rest.first()?;
        match self.imports.get(&(home, name.as_str())) {
            Some(offered) if offers_left > 0 => {
                let offered = [offered, &rest[1..]].concat();
                self.home(home, &offered, offers_left - 1)
            }
            _ => self.modules.get(home).copied(),
        }
    }

    /// The path from the crate's root, or `None` if it begins with another crate or a local name.
    fn absolute(
        &self,
        module: &[String],
        path: &[String],
        offers_left: usize,
    ) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => return Some([module, rest].concat()),
            "super" => {
                let (_, parent) = module.split_last()?;
                let mut inner = rest;
                let mut parent = parent;
                while let Some((next, after)) = inner.split_first()
                    && next == "super"
                {
                    parent = parent.split_last()?.1;
                    inner = after;
                }
                return Some([parent, inner].concat());
            }
            _ => {}
        }
        let child = [module, std::slice::from_ref(first)].concat();
        if self.modules.contains_key(child.as_slice()) {
            return Some([child.as_slice(), rest].concat());
        }
        let imported = self.imports.get(&(module, first.as_str()))?;
        if offers_left == 0 || imported.first() == Some(first) {
            return None;
        }
        let imported = [imported, rest].concat();
        self.absolute(module, &imported, offers_left - 1)
    }
}
