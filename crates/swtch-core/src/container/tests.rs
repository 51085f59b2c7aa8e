use super::*;

const ID: &str = "3f2a9c1b7d5e4c0a8b6f1e2d3c4b5a69788796a5b4c3d2e1f00112233445566b";
const OTHER_ID: &str = "b7d5e3f2a9c14c0a8b6f1e2d3c4b5a69788796a5b4c3d2e1f001122334455667";
const UID: &str = "9f1c0d2e-3b4a-4c5d-8e6f-7a8b9c0d1e2f";

/// The path with `ID`, `OTHER`, `UID` and `U_D` (the uid as systemd's units have it) filled in.
fn filled(path: &str) -> String {
    path.replace("OTHER", OTHER_ID)
        .replace("ID", "\0")
        .replace("U\0", UID)
        .replace("U_D", &UID.replace('-', "_"))
        .replace('\0', ID)
}

/// `runtime id uid class short`, as far as the path tells them.
fn told(path: &str) -> String {
    let path = filled(path);
    let owner = CgroupOwner::of(&path);
    let words = [
        owner.runtime.map(CgroupMaker::as_str),
        owner.container_id.as_deref(),
        owner.pod_uid.as_deref(),
        owner.pod_qos.map(PodQos::as_str),
    ];
    let words = words.map(|word| word.unwrap_or("-")).join(" ");
    let words = words.replace(ID, "ID").replace(OTHER_ID, "OTHER");
    let short = owner.short().unwrap_or_else(|| "-".to_owned());
    format!("{words} {short}").replace(UID, "UID")
}

#[test]
fn containers_of_pods_are_told() {
    let table = [
        // The driver cgroupfs.
        (
            "/kubepods/burstable/podUID/ID",
            "- ID UID Burstable container:3f2a9c1b7d5e",
        ),
        (
            "/kubepods/podUID/ID",
            "- ID UID Guaranteed container:3f2a9c1b7d5e",
        ),
        (
            "/kubepods/besteffort/podUID/crio-ID",
            "cri-o ID UID BestEffort cri-o:3f2a9c1b7d5e",
        ),
        (
            "/kubepods/burstable/pod0123456789abcdef0123456789abcdef/ID",
            "- ID 0123456789abcdef0123456789abcdef Burstable container:3f2a9c1b7d5e",
        ),
        ("/kubepods/burstable/podUID", "- - UID Burstable pod:UID"),
        // The driver systemd.
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_D.slice/cri-containerd-ID.scope",
            "containerd ID UID Burstable containerd:3f2a9c1b7d5e",
        ),
        (
            "/kubepods.slice/kubepods-podU_D.slice/crio-ID.scope",
            "cri-o ID UID Guaranteed cri-o:3f2a9c1b7d5e",
        ),
        (
            "/kubepods.slice/kubepods-podU_D.slice/crio-ID.scope/container",
            "cri-o ID UID Guaranteed cri-o:3f2a9c1b7d5e/container",
        ),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podU_D.slice/docker-ID.scope",
            "docker ID UID BestEffort docker:3f2a9c1b7d5e",
        ),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podU_D.slice",
            "- - UID BestEffort pod:UID",
        ),
        // What looks after a container is none.
        (
            "/kubepods.slice/kubepods-podU_D.slice/crio-conmon-ID.scope",
            &filled("- - UID Guaranteed pod:UID/crio-conmon-ID.scope").replace(UID, "UID"),
        ),
        // Kubelet uses systemd, containerd does not.
        (
            "/system.slice/containerd.service/kubepods-burstable-podU_D.slice:cri-containerd:ID",
            "containerd ID UID Burstable containerd:3f2a9c1b7d5e",
        ),
        // Kind: kubelet has a root of its own, in a container.
        (
            "/kubelet/kubepods/podUID/ID",
            "- ID UID Guaranteed container:3f2a9c1b7d5e",
        ),
        (
            "/docker/OTHER/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
             kubelet-kubepods-burstable-podU_D.slice/cri-containerd-ID.scope",
            "containerd ID UID Burstable containerd:3f2a9c1b7d5e",
        ),
        // Docker in a pod, and a pod in a pod.
        (
            "/kubepods/podUID/OTHER/docker/ID",
            "docker ID UID Guaranteed docker:3f2a9c1b7d5e",
        ),
        (
            "/kubepods/pod0123456789abcdef0123456789abcdef/OTHER/kubepods/burstable/podUID",
            "- - UID Burstable pod:UID",
        ),
        // Seen from another pod's cgroup namespace.
        (
            "/../../podUID/cri-containerd-ID.scope",
            "containerd ID UID - containerd:3f2a9c1b7d5e",
        ),
        ("/../ID", "- ID - - container:3f2a9c1b7d5e"),
    ];
    for (path, expected) in table {
        assert_eq!(told(path), expected, "{path}");
    }
}

#[test]
fn containers_without_a_pod_are_told() {
    let table = [
        ("/docker/ID", "docker ID - - docker:3f2a9c1b7d5e"),
        (
            "/system.slice/docker-ID.scope",
            "docker ID - - docker:3f2a9c1b7d5e",
        ),
        (
            "/system.slice/docker-ID.scope/init.scope/",
            "docker ID - - docker:3f2a9c1b7d5e/init.scope",
        ),
        (
            "/docker/OTHER/docker/ID/nested",
            "docker ID - - docker:3f2a9c1b7d5e/nested",
        ),
        ("/ecs/task/ID", "- ID - - container:3f2a9c1b7d5e"),
        // A directory of a pod of Podman's, one of anybody's, and a unit.
        ("/libpod_parent/ID/conmon", "- - - - -"),
        ("/batch/ID", "- - - - -"),
        ("/user.slice/ID.scope", "systemd - - - -"),
        ("/system.slice/machine-learning.scope", "systemd - - - -"),
        // LXC with a directory of its own.
        ("/lxc/lxc.payload.web", "lxc web - - lxc:web"),
        ("/lxc/lxc.monitor.web", "- - - - -"),
        ("/default/ID", "containerd ID - - containerd:3f2a9c1b7d5e"),
        (
            "/user.slice/nerdctl-ID.scope",
            "containerd ID - - containerd:3f2a9c1b7d5e",
        ),
        (
            "/machine.slice/libpod-ID.scope",
            "podman ID - - podman:3f2a9c1b7d5e",
        ),
        (
            "/libpod_parent/libpod-ID",
            "podman ID - - podman:3f2a9c1b7d5e",
        ),
        (
            "/system.slice/web.service/libpod-payload-ID",
            "podman ID - - podman:3f2a9c1b7d5e",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
            "podman ID - - podman:3f2a9c1b7d5e/container",
        ),
        ("/machine.slice/libpod-conmon-ID.scope", "systemd - - - -"),
        ("/libpod_parent/libpod-conmon-ID", "- - - - -"),
        (
            "/machine.slice/machine-libpod_pod_ID.slice",
            "systemd - - - -",
        ),
        (
            "/lxc.payload.web/system.slice/ssh.service",
            "lxc web - - lxc:web/system.slice/ssh.service",
        ),
        ("/lxc/web-1:2", "lxc web-1:2 - - lxc:web-1:2"),
        ("/lxc.payload/web", "lxc web - - lxc:web"),
        ("/lxc.monitor.web", "- - - - -"),
        ("/lxc", "- - - - -"),
        (
            r"/machine.slice/machine-web\x2d1.scope/payload",
            "machine web-1 - - machine:web-1/payload",
        ),
        (
            r"/machine.slice/machine-qemu\x2d1\x2dvm.scope",
            "machine qemu-1-vm - - machine:qemu-1-vm",
        ),
    ];
    for (path, expected) in table {
        assert_eq!(told(path), expected, "{path}");
    }
}

#[test]
fn what_is_no_container_keeps_its_path() {
    let units = [
        "/init.scope",
        "/system.slice/foo.service",
        "/user.slice/user-1000.slice/session-1.scope",
        "/kubepods.slice/kubepods-burstable.slice",
        "/system.slice/foo.service/worker",
    ];
    for path in units {
        assert_eq!(told(path), "systemd - - - -", "{path}");
        assert_eq!(cgroup_words(path), path);
    }
    for path in [
        "",
        "/",
        "//",
        "/..",
        "/web",
        "/kubepods/burstable",
        "/.service",
    ] {
        assert_eq!(told(path), "- - - - -", "{path}");
    }
}

/// A directory may have any name. One that is almost that of a container is none.
#[test]
fn almost_a_name_is_none() {
    let id_but = |from: &str, to: &str| format!("/docker/{}", ID.replacen(from, to, 1));
    let uid_but = |from: &str, to: &str| format!("/kubepods/pod{}", UID.replacen(from, to, 1));
    let names = [
        id_but("3f", "f"),
        id_but("3f", "33f"),
        id_but("3f", "3F"),
        id_but("3f", "3g"),
        id_but("3f", "\n\n"),
        id_but("3f2", "€"),
        id_but("3f2", ".."),
        uid_but("9f", "9F"),
        uid_but("-", "_"),
        uid_but("9f1", "9f1-"),
        uid_but(UID, ""),
        format!("/docker-{ID}x.scope"),
        format!("/-{ID}"),
        format!("/evil-{ID}.scope"),
        format!("/kubepods-pod{UID}.slice"),
        filled("/x-podU_D.slice"),
        filled("/x-burstable-podU_D.slice"),
        "/lxc/".to_owned(),
        "/lxc/..".to_owned(),
        "/lxc.payload.".to_owned(),
        "/machine.slice/machine-.scope".to_owned(),
        format!("/{}", "a".repeat(4096)),
        "/a".repeat(2048),
        ":".repeat(4096),
        format!("/kubepods/{}/{}", "pod".repeat(1000), "-".repeat(64)),
    ];
    for path in names {
        let owner = CgroupOwner::of(&path);
        assert_eq!((owner.container_id, owner.pod_uid), (None, None), "{path}");
        assert_eq!(cgroup_words(&path), path);
    }
}

/// What a name says is data: no escape becomes a character that a terminal would obey.
#[test]
fn escapes_of_what_cannot_be_read_stay() {
    let machine = |name: &str| {
        let path = format!("/machine.slice/machine-{name}.scope");
        CgroupOwner::of(&path).container_id.unwrap().into_owned()
    };
    for (name, expected) in [
        (r"a\x2db\x2dc", "a-b-c"),
        (r"a\x0ab\x1b[31m\x7f", r"a\x0ab\x1b[31m\x7f"),
        (r"\xe2\x80\xae\x20", r"\xe2\x80\xae\x20"),
        (r"a\x2", r"a\x2"),
        (r"a\x+fb\x", r"a\x+fb\x"),
        (r"\x€\x2€", r"\x€\x2€"),
        (r"\x5cx41", r"\x41"),
    ] {
        assert_eq!(machine(name), expected);
    }
    let raw = "/lxc/a\n\u{1b}[31m\u{202e}\"";
    assert_eq!(
        CgroupOwner::of(raw).container_id.as_deref(),
        Some(&raw[5..])
    );
}
