use super::*;

fn write(file: &dyn StorageFile, at: u64, bytes: &[u8]) -> io::Result<()> {
    file.write_at(&mut [IoSlice::new(bytes)], at)
}

fn lost(disk: &SimulatedDisk, seed: u64) -> SimulatedDisk {
    let fork = disk.fork();
    fork.lose_power(seed);
    fork
}

#[test]
fn what_was_synced_outlives_every_loss_of_power() {
    let disk = SimulatedDisk::new();
    let storage = disk.storage();
    let file = storage.create("file").unwrap();
    storage.sync_names().unwrap();
    write(&*file, 10, &[1; 3000]).unwrap();
    file.sync().unwrap();
    write(&*file, 2000, &[2; 3000]).unwrap();
    let mut kept = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let after = lost(&disk, seed).contents("file").unwrap();
        assert_eq!(after[..10], [0; 10]);
        assert_eq!(
            after[10..1536],
            [1; 1526],
            "sectors that the second write did not touch"
        );
        assert!(after.len() == 3010 || after.len() == 5000);
        kept.insert(after);
    }
    assert!(kept.len() > 20, "seeds should differ: {} ways", kept.len());
    disk.kill();
    assert_eq!(disk.contents("file").unwrap()[2000..], [2; 3000]);
}

#[test]
fn names_that_were_not_synced_may_be_there_or_not() {
    let disk = SimulatedDisk::new();
    let storage = disk.storage();
    for name in ["kept", "old"] {
        storage.create(name).unwrap();
    }
    storage.sync_names().unwrap();
    storage.create("new").unwrap();
    storage.rename("old", "renamed").unwrap();
    let mut found = std::collections::BTreeSet::new();
    for seed in 0..100 {
        found.insert(lost(&disk, seed).names());
    }
    let expected = [
        vec!["kept", "new", "old"],
        vec!["kept", "new", "renamed"],
        vec!["kept", "old"],
        vec!["kept", "renamed"],
    ];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    storage.sync_names().unwrap();
    assert_eq!(lost(&disk, 1).names(), ["kept", "new", "renamed"]);
}

#[test]
fn the_wanted_change_fails_and_a_dead_program_changes_nothing() {
    let disk = SimulatedDisk::new();
    let storage = disk.storage();
    let file = storage.create("file").unwrap();
    disk.set_fault(Some(Fault {
        change: 3,
        effect: Effect::Error,
    }));
    write(&*file, 0, b"a").unwrap();
    assert!(write(&*file, 0, b"b").is_err());
    assert_eq!(disk.change(3), Some((Change::Write, "file".to_owned())));
    write(&*file, 1, b"c").unwrap();
    disk.set_fault(Some(Fault {
        change: 6,
        effect: Effect::PowerLoss,
    }));
    file.sync().unwrap();
    assert!(write(&*file, 2, b"d").is_err());
    assert!(storage.list().is_err());
    disk.kill();
    assert!(write(&*file, 2, b"e").is_err());
    assert_eq!(disk.contents("file").unwrap(), b"acd");
}

#[test]
fn a_sync_that_fails_loses_something_for_good() {
    let mut lost_some = false;
    for changes in 0..20 {
        let disk = SimulatedDisk::new();
        let storage = disk.storage();
        let file = storage.create("file").unwrap();
        for _ in 0..=changes {
            storage.sync_names().unwrap();
        }
        write(&*file, 0, &[7; 5000]).unwrap();
        disk.set_fault(Some(Fault {
            change: disk.changes() + 1,
            effect: Effect::Error,
        }));
        assert!(file.sync().is_err());
        file.sync().unwrap();
        assert_eq!(disk.contents("file").unwrap(), [7; 5000]);
        disk.lose_power(1);
        lost_some |= disk.contents("file").unwrap() != [7; 5000];
    }
    assert!(lost_some);
}

#[test]
fn a_full_disk_takes_what_was_reserved() {
    let disk = SimulatedDisk::new();
    disk.set_capacity_bytes(5 * 4096);
    let storage = disk.storage();
    let file = storage.create("file").unwrap();
    file.reserve(4 * 4096).unwrap();
    assert_eq!(
        (file.bytes().unwrap(), storage.free_bytes().unwrap()),
        (4 * 4096, 4096)
    );
    let other = storage.create("other").unwrap();
    write(&*other, 100, &[1; 4000]).unwrap_err();
    write(&*other, 0, &[1; 4096]).unwrap();
    write(&*other, 4096, &[1]).unwrap_err();
    write(&*file, 3 * 4096, &[1; 4096]).unwrap();
    storage.remove("other").unwrap();
    assert_eq!(disk.used_bytes(), 4 * 4096);
}

#[test]
fn a_flipped_bit_is_seen_and_durable() {
    let disk = SimulatedDisk::new();
    let storage = disk.storage();
    let file = storage.create("file").unwrap();
    write(&*file, 0, &[0; 3]).unwrap();
    file.sync().unwrap();
    storage.sync_names().unwrap();
    assert!(disk.flip_bit("file", 9));
    assert!(!disk.flip_bit("file", 24));
    assert_eq!(lost(&disk, 3).contents("file").unwrap(), [0, 2, 0]);
}
