//! UUID and hash seed of a new volume, so that the same arguments and the same content make the same bytes.

use diorite_ext_format::Timestamp;

use crate::mkfs::MkfsOptions;

impl MkfsOptions {
    /// Options that make the same bytes each time: UUID and hash seed from `seed`, all times `time`.
    #[must_use]
    pub fn reproducible(mut self, seed: u64, time: Timestamp) -> Self {
        self.uuid = Some(uuid_of_seed(seed));
        self.hash_seed = Some(uuid_of_seed(!seed));
        self.time = time;
        self
    }

    /// UUID and hash seed from a digest, if they are not given: the same for the same digest.
    #[must_use]
    pub fn identified_by(mut self, digest: [u8; 16]) -> Self {
        let made = |bytes| uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes();
        self.uuid = self.uuid.or_else(|| Some(made(digest)));
        self.hash_seed = self.hash_seed.or_else(|| Some(made(digest.map(|byte| !byte))));
        self
    }

    /// The options that differ from [`Self::default`], by name and in a fixed order, and the time: what identifies a volume
    /// beside its content.
    #[must_use]
    pub fn named(&self) -> String {
        // Every field stands here. Volumes that do not use a later one keep their identity.
        macro_rules! named {
            ($($field:ident)*) => {{
                let usual = Self { time: Timestamp::default(), ..Self::default() };
                let Self { $($field),* } = self;
                [$((stringify!($field), format!("{:?}", $field), format!("{:?}", usual.$field))),*]
            }};
        }
        let fields = named!(
            flavor size_bytes block_size cluster_size inode_size bytes_per_inode inodes label uuid hash_seed
            reserved_percent features root_owner journal_blocks fast_commit_blocks strict_encoding flex_groups
            resize_blocks quota_kinds mmp_update_interval discard blocks_per_group arrangement time
        );
        let given = fields.into_iter().filter(|(_, value, usual)| value != usual);
        given.map(|(name, value, _)| format!("{name}: {value}\n")).collect::<Vec<_>>().concat()
    }
}

fn uuid_of_seed(seed: u64) -> [u8; 16] {
    let mut state = seed;
    let mut next = || {
        // SplitMix64, so that close seeds give unlike bytes.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_le_bytes()
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&next());
    bytes[8..].copy_from_slice(&next());
    uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes()
}

#[cfg(test)]
mod tests {
    use diorite_ext_format::{Owner, QuotaKind};

    use super::*;
    use crate::mkfs::Flavor;

    /// The identity was the `Debug` text of all options, so that one more field gave equal content another UUID.
    #[test]
    fn names_of_options_are_those_that_are_given() {
        let time = Timestamp { seconds: 5, nanoseconds: 0 };
        let plain = MkfsOptions { time, ..MkfsOptions::new(Flavor::Ext4) };
        assert_eq!(plain.named(), "flavor: Ext4\ntime: Timestamp { seconds: 5, nanoseconds: 0 }\n");
        let given = MkfsOptions {
            block_size: Some(1024),
            label: b"a".to_vec(),
            reserved_percent: 0.5,
            root_owner: Owner { uid: 0, gid: 7 },
            quota_kinds: Some(vec![QuotaKind::User, QuotaKind::Project]),
            discard: true,
            time: Timestamp::default(),
            ..MkfsOptions::default()
        };
        assert_eq!(
            given.named(),
            "block_size: Some(1024)\nlabel: [97]\nreserved_percent: 0.5\nroot_owner: Owner { uid: 0, gid: 7 }\n\
             quota_kinds: Some([User, Project])\ndiscard: true\n"
        );
    }
}
