//! The watcher loads each of a hundred saves, whichever way a program saves the file, by events alone and by polls
//! alone.

use std::fs::File;
use std::io::Write as _;

use super::*;

const SAVES: u64 = 100;

/// Returns options for events without polls, and for polls without events.
fn both() -> [WatchOptions; 2] {
    let options = WatchOptions::default().settle(millis(5));
    [options.clone().poll(NEVER), options.events(false).poll(millis(2))]
}

/// Saves repeatedly, and waits for each save to be loaded.
fn each_save_is_seen(save: impl Fn(&Site, u64)) {
    for options in both() {
        let site = Site::new();
        save(&site, 1);
        let watcher = site.watch(options);
        for round in 2..SAVES + 2 {
            save(&site, round);
            site.until_burst(&watcher, round);
        }
        // The watcher replaces the limits before it counts the reload in its status.
        until("the status counts the last reload", || watcher.status().reloads >= SAVES);
        let status = watcher.status();
        assert_eq!(status.reloads, SAVES, "{status:?}");
        assert_eq!(status.generation, SAVES, "{status:?}");
        assert_eq!(status.events_error, None);
    }
}

#[test]
fn in_place() {
    each_save_is_seen(|site, round| {
        // All texts have the same length, so the file is never cut short.
        let mut file = File::options().write(true).open(site.file()).unwrap();
        let text = format!("PerUser: {{burst: {round:<4}, count: 10, period: 1s, id: string}}\n");
        file.write_all(text.as_bytes()).unwrap();
    });
}

#[test]
fn emptied_and_written() {
    each_save_is_seen(|site, round| fs::write(site.file(), text(round)).unwrap());
}

#[test]
fn written_beside_and_renamed() {
    each_save_is_seen(|site, round| {
        fs::write(site.path(".limits.yml.new"), text(round)).unwrap();
        fs::rename(site.path(".limits.yml.new"), site.file()).unwrap();
    });
}

#[test]
fn removed_and_written() {
    each_save_is_seen(|site, round| {
        fs::remove_file(site.file()).unwrap();
        fs::write(site.file(), text(round)).unwrap();
    });
}

/// A deployment moves the folder away and a new one to its name, while the first change settles. Changes there went unseen.
#[test]
fn in_a_folder_that_was_replaced() {
    let site = Site::new();
    let make = |name: &str, burst| {
        fs::create_dir(site.path(name)).unwrap();
        fs::write(site.path(name).join("limits.yml"), text(burst)).unwrap();
    };
    make("now", 1);
    let file = site.path("now").join("limits.yml");
    let watcher = site.watch_file(&file, WatchOptions::default().settle(millis(150)).poll(NEVER));
    for round in 2..5 {
        make("new", round);
        // Until the watcher waits for events.
        std::thread::sleep(millis(400));
        fs::rename(site.path("now"), site.path(&format!("old{round}"))).unwrap();
        std::thread::sleep(millis(20));
        fs::rename(site.path("new"), site.path("now")).unwrap();
        site.until_burst(&watcher, round);
        std::thread::sleep(millis(400));
        fs::write(&file, text(10 + round)).unwrap();
        site.until_burst(&watcher, 10 + round);
    }
}

/// Kubernetes updates a mounted ConfigMap in this way: `limits.yml` is a symbolic link to `..data/limits.yml`, and
/// `..data` is a symbolic link that is replaced by one to a new folder.
#[cfg(unix)]
#[test]
fn by_a_link_to_another_folder() {
    use std::os::unix::fs::symlink;

    each_save_is_seen(|site, round| {
        let folder = format!("..{round}");
        fs::create_dir(site.path(&folder)).unwrap();
        fs::write(site.path(&folder).join("limits.yml"), text(round)).unwrap();
        symlink(&folder, site.path("..data_tmp")).unwrap();
        fs::rename(site.path("..data_tmp"), site.path("..data")).unwrap();
        if round == 1 {
            fs::remove_file(site.file()).unwrap();
            symlink("..data/limits.yml", site.file()).unwrap();
        } else {
            fs::remove_dir_all(site.path(&format!("..{}", round - 1))).unwrap();
        }
    });
}

/// The path to the file leads through a symbolic link to the file's folder. The link is replaced by one to another
/// folder.
#[cfg(unix)]
#[test]
fn by_a_link_on_the_way() {
    use std::os::unix::fs::symlink;

    let site = Site::new();
    for (folder, burst) in [("one", 1), ("two", 2)] {
        fs::create_dir(site.path(folder)).unwrap();
        fs::write(site.path(folder).join("limits.yml"), text(burst)).unwrap();
    }
    symlink("one", site.path("now")).unwrap();
    let options = WatchOptions::default().settle(millis(5)).poll(NEVER);
    let watcher = site.watch_file(&site.path("now").join("limits.yml"), options);
    symlink("two", site.path("next")).unwrap();
    fs::rename(site.path("next"), site.path("now")).unwrap();
    site.until_burst(&watcher, 2);
    // The watcher now watches the new folder.
    fs::write(site.path("two").join("limits.yml"), text(3)).unwrap();
    site.until_burst(&watcher, 3);
}

/// A link leads to a link in another folder, which is replaced.
#[cfg(unix)]
#[test]
fn by_a_link_behind_a_link() {
    use std::os::unix::fs::symlink;

    let site = Site::new();
    for (folder, burst) in [("one", 1), ("two", 2)] {
        fs::create_dir(site.path(folder)).unwrap();
        fs::write(site.path(folder).join("limits.yml"), text(burst)).unwrap();
    }
    fs::create_dir(site.path("between")).unwrap();
    let between = site.path("between").join("limits.yml");
    symlink("../one/limits.yml", &between).unwrap();
    fs::remove_file(site.file()).unwrap();
    symlink("between/limits.yml", site.file()).unwrap();
    let watcher = site.watch(WatchOptions::default().settle(millis(5)).poll(NEVER));
    symlink("../two/limits.yml", site.path("between").join("next")).unwrap();
    fs::rename(site.path("between").join("next"), &between).unwrap();
    site.until_burst(&watcher, 2);
    fs::write(site.path("two").join("limits.yml"), text(3)).unwrap();
    site.until_burst(&watcher, 3);
}

/// The watcher compares contents, so it finds a save that leaves the file's length and modification time as they were.
#[test]
fn with_the_time_of_before() {
    for events in [true, false] {
        let site = Site::new();
        let options = WatchOptions::default().settle(millis(5)).poll(millis(5));
        let watcher = site.watch(options.events(events));
        let modified = fs::metadata(site.file()).unwrap().modified().unwrap();
        fs::write(site.file(), text(2)).unwrap();
        File::options().write(true).open(site.file()).unwrap().set_modified(modified).unwrap();
        site.until_burst(&watcher, 2);
    }
}
