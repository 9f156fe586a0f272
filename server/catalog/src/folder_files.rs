//! Divides what a listing finds in a folder into the files of its dataset and those that are left out: by their names
//! and, where a name leaves it open, by their last bytes.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, path::Path};

use super::{
    file_names::{self, NameKind},
    foreign::ForeignFiles,
    found_files::{Listing, relative},
    left_out::{LeftOut, LeftOutReason},
    pinned::is_same,
    store::{Store, StoreError},
};

/// Files whose last bytes are read at once.
const READS_AT_ONCE: usize = 32;

/// Last bytes that tell a format.
const END_BYTES: u64 = 8;

/// The last bytes of Parquet files, plain and encrypted, and of Arrow IPC files.
const MAGICS: [&[u8]; 3] = [b"PAR1", b"PARE", b"ARROW1"];

/// What was seen of a folder.
#[derive(Debug, Default)]
pub(super) struct FolderFiles(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    left_out: LeftOut,
    /// The hidden folder that was seen last: listings have the files of one in a row.
    hidden_folder: String,
    foreign: ForeignFiles,
}

// === impl FolderFiles ===

impl FolderFiles {
    /// Whether a file, by its path below the folder, may be one of the dataset.
    pub(super) fn takes(&self, below: &str) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match NameKind::of(below) {
            NameKind::Data | NameKind::Open => return true,
            NameKind::InHidden(folder) => seen.hide(folder),
            NameKind::Hidden if file_names::is_data(below) => {
                seen.left_out.add(LeftOutReason::Hidden, below.to_owned());
            }
            // Markers and checksums.
            NameKind::Hidden => {}
            NameKind::Other => {
                seen.foreign.note(below);
                seen.left_out.add(LeftOutReason::Name, below.to_owned());
            }
        }
        false
    }

    /// Whether a folder, by its path below this one, may have files of the dataset.
    pub(super) fn enters(&self, below: &str) -> bool {
        let is_hidden = file_names::is_hidden(below.rsplit('/').next().unwrap_or(below));
        if is_hidden {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).hide(below);
        }
        !is_hidden
    }

    /// Why a folder without files of a dataset is not a dataset, if it has files of another format.
    pub(super) fn refusal(&self, folder: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).foreign.refusal(folder)
    }

    /// The files of the dataset among those that it may have, and what is left out. Reads the ends of those whose names
    /// leave it open, unless an earlier listing has them.
    pub(super) async fn divide(
        self,
        store: &Store,
        listing: &mut Listing,
        earlier: Option<&Listing>,
    ) -> Result<(), StoreError> {
        let mut left_out = self.0.into_inner().unwrap_or_else(PoisonError::into_inner).left_out;
        let (mut objects, mut open) = (Vec::with_capacity(listing.objects.len()), Vec::new());
        for object in std::mem::take(&mut listing.objects) {
            let is_open = relative(&listing.root, &object.location).map(NameKind::of) == Some(NameKind::Open);
            // Files without a byte have no rows.
            match is_open {
                false => objects.push(object),
                true if object.size > 0 => open.push(object),
                true => {}
            }
        }
        let known = known_files(earlier);
        let known = &known;
        let read = futures::stream::iter(open).map(|object| async move {
            let known = known.get(&object.location).filter(|(known, _)| is_same(known, &object));
            let is_data = match known {
                Some((_, is_data)) => *is_data,
                None => has_magic(store, &object).await?,
            };
            Ok::<_, StoreError>((object, is_data))
        });
        let read: Vec<(ObjectMeta, bool)> = read.buffered(READS_AT_ONCE).try_collect().await?;
        for (object, is_data) in read {
            if is_data {
                objects.push(object);
            } else {
                let name = relative(&listing.root, &object.location).unwrap_or(object.location.as_ref());
                left_out.add(LeftOutReason::Content, name.to_owned());
                listing.others.push(object);
            }
        }
        listing.objects = objects;
        listing.left_out = left_out;
        Ok(())
    }
}

impl Seen {
    fn hide(&mut self, folder: &str) {
        if self.hidden_folder != folder {
            folder.clone_into(&mut self.hidden_folder);
            self.left_out.add(LeftOutReason::Hidden, format!("{folder}/"));
        }
    }
}

/// The files of an earlier listing, and whether they are of the dataset.
fn known_files(earlier: Option<&Listing>) -> HashMap<&Path, (&ObjectMeta, bool)> {
    let Some(earlier) = earlier else { return HashMap::new() };
    let data = earlier.objects.iter().map(|object| (&object.location, (object, true)));
    data.chain(earlier.others.iter().map(|object| (&object.location, (object, false)))).collect()
}

/// Whether a file ends as one of Parquet or Arrow IPC does.
async fn has_magic(store: &Store, object: &ObjectMeta) -> Result<bool, StoreError> {
    let end = store.get(object, object.size.saturating_sub(END_BYTES)..object.size).await?;
    Ok(MAGICS.iter().any(|magic| end.ends_with(magic)))
}
