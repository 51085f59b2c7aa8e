//! Whose a cgroup is, by its path alone: which container, of which runtime, in which pod.
//!
//! ```text
//! /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope/init.scope
//!                                                   └ QoS class └ pod            └ runtime  └ container └ below it
//! ```
//!
//! Of several containers, or pods, inside each other the innermost counts. Only names that a runtime is known to make
//! are containers: nothing is guessed. Paths are text from outside, and so are the parts of them that are told: they
//! are escaped where they are shown.
//!
//! Where the names are made: kubelet `pkg/kubelet/cm/cgroup_manager_linux.go` (`ToSystemd`, `ToCgroupfs`) and
//! `qos_container_manager_linux.go`; containerd `getCgroupsPath` of its CRI plugin; CRI-O
//! `internal/config/cgmgr`; Docker `daemon/oci_linux.go` (`WithCgroups`); nerdctl `pkg/cmd/container/run_cgroup_linux.go`;
//! Podman `libpod/container_internal_linux.go` (`getOCICgroupPath`); LXC `src/lxc/cgroups/cgfsng.c`; systemd
//! `src/machine/machine.c` and `src/basic/unit-name.c`.

use std::borrow::Cow;

/// Number of digits of a container's id that are enough to tell it from others, as in `docker ps`.
const SHORT_ID: usize = 12;

/// Who made a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupMaker {
    /// Docker Engine.
    Docker,
    /// Containerd: for Kubernetes, or for nerdctl.
    Containerd,
    /// CRI-O.
    CriO,
    /// Podman.
    Podman,
    /// LXC, or LXD and Incus, which use it.
    Lxc,
    /// Systemd-machined: a container of `systemd-nspawn`, or a virtual machine of libvirt.
    Machined,
    /// Systemd, for a unit that is no container: a service, a scope or a slice.
    Systemd,
}

impl CgroupMaker {
    /// Its name. Kubernetes calls its own runtimes so, too: a container's status has `containerd://<id>`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Containerd => "containerd",
            Self::CriO => "cri-o",
            Self::Podman => "podman",
            Self::Lxc => "lxc",
            Self::Machined => "machine",
            Self::Systemd => "systemd",
        }
    }
}

/// The quality of service of a pod, which follows from its requests and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodQos {
    /// Requests are limits. Such pods are at the top level.
    Guaranteed,
    /// There are requests.
    Burstable,
    /// There are none.
    BestEffort,
}

impl PodQos {
    /// The word that Kubernetes has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// The class of the pods in the cgroup of this name.
    fn of_level(level: &str) -> Option<Self> {
        match level {
            "kubepods" => Some(Self::Guaranteed),
            "burstable" => Some(Self::Burstable),
            "besteffort" => Some(Self::BestEffort),
            _ => None,
        }
    }
}

/// What the path of a cgroup tells about whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupOwner<'p> {
    /// Who made it; `None` where the path does not tell, as with kubelet's `cgroupfs` driver.
    pub runtime: Option<CgroupMaker>,
    /// The container: 64 hexadecimal digits, or the name of one of LXC or systemd-machined.
    pub container_id: Option<Cow<'p, str>>,
    /// The uid of the pod. That of a static pod is the hash of its file, and not the uid that the API server has.
    pub pod_uid: Option<Cow<'p, str>>,
    /// The class of the pod.
    pub pod_qos: Option<PodQos>,
    /// The rest of the path, below the container or pod.
    below: &'p str,
}

impl<'p> CgroupOwner<'p> {
    /// Reads a path below the root of its hierarchy. One relative to a cgroup namespace may begin with `/..`.
    pub fn of(path: &'p str) -> Self {
        let mut owner = Self::default();
        let path = path.trim_end_matches('/');
        let is_of_ecs = path.starts_with("/ecs/");
        let (mut above, mut end) = ("", 0);
        for name in path.split('/') {
            end += name.len();
            let may_be_bare = is_of_ecs || owner.pod_uid.is_some() || above == "..";
            owner.enter((above, may_be_bare), name, &path[end..]);
            (above, end) = (name, end + 1);
        }
        owner
    }

    /// Goes on to the cgroup of this name, with what is below it. Whether it may be a container that has nothing but an id
    /// for its name, what is above it tells.
    fn enter(&mut self, (above, may_be_bare): (&str, bool), name: &'p str, below: &'p str) {
        // The path for systemd, `slice:prefix:name`, is a directory where a runtime uses the driver `cgroupfs` and kubelet
        // does not.
        let (slice, container) = name
            .split_once(':')
            .filter(|(slice, _)| slice.ends_with(".slice"))
            .unwrap_or((name, name));
        if let Some((uid, qos)) = pod_of(above, slice) {
            *self = Self {
                pod_uid: Some(uid),
                pod_qos: qos,
                below,
                ..Self::default()
            };
        }
        if let Some((runtime, id)) = container_of((above, may_be_bare), container) {
            self.runtime = runtime;
            self.container_id = Some(id);
            self.below = below;
        } else if self.container_id.is_none() && self.pod_uid.is_none() && is_unit(name) {
            self.runtime = Some(CgroupMaker::Systemd);
        }
    }

    /// The container, or the pod if it is none, in few characters, with the path below it: `docker:3f2a9c1b7d5e/init.scope`.
    pub fn short(&self) -> Option<String> {
        let Some(id) = &self.container_id else {
            let uid = self.pod_uid.as_ref()?;
            return Some(format!("pod:{uid}{}", self.below));
        };
        let id = if is_id(id) { &id[..SHORT_ID] } else { id };
        let runtime = self.runtime.map_or("container", CgroupMaker::as_str);
        Some(format!("{runtime}:{id}{}", self.below))
    }
}

/// The path of a cgroup in few characters: its container or pod, if it is of one.
pub fn cgroup_words(path: &str) -> Cow<'_, str> {
    let short = CgroupOwner::of(path).short();
    short.map_or(Cow::Borrowed(path), Cow::Owned)
}

/// The uid and class of a pod: `pod<uid>` in the directory of its class, or `kubepods-burstable-pod<uid>.slice`, where
/// `-` of the uid is `_`. Before `kubepods` there may be more, as in `kubelet-kubepods-…` (`--cgroup-root`).
fn pod_of<'p>(above: &str, name: &'p str) -> Option<(Cow<'p, str>, Option<PodQos>)> {
    let (uid, qos) = match name.strip_suffix(".slice") {
        Some(unit) => {
            let (parents, uid) = unit.rsplit_once("-pod")?;
            let mut parents = parents.rsplit('-').peekable();
            let qos = PodQos::of_level(parents.peek()?)?;
            let is_of_kubelet = parents.any(|part| part == "kubepods") && !uid.contains('-');
            is_of_kubelet.then(|| (Cow::Owned(uid.replace('_', "-")), Some(qos)))?
        }
        None => (
            Cow::Borrowed(name.strip_prefix("pod")?),
            PodQos::of_level(above),
        ),
    };
    is_uid(&uid).then_some((uid, qos))
}

/// The runtime of a container, where its name or that of the directory tells it, and its id. Podman's `libpod-conmon-<id>`
/// and CRI-O's `crio-conmon-<id>` are what looks after a container.
fn container_of<'p>(
    (above, may_be_bare): (&str, bool),
    name: &'p str,
) -> Option<(Option<CgroupMaker>, Cow<'p, str>)> {
    let of_lxc = match (name.strip_prefix("lxc.payload."), above) {
        (None, "lxc" | "lxc.payload") => Some(name),
        (payload, _) => payload,
    };
    // `lxc.monitor.<name>` is what looks after a container.
    if let Some(name) =
        of_lxc.filter(|name| !matches!(*name, "" | "..") && !name.starts_with("lxc."))
    {
        return Some((Some(CgroupMaker::Lxc), Cow::Borrowed(name)));
    }
    let unit = name.strip_suffix(".scope");
    if let Some(machine) = unit.and_then(|unit| unit.strip_prefix("machine-"))
        && !machine.is_empty()
        && above == "machine.slice"
    {
        return Some((Some(CgroupMaker::Machined), unescaped(machine)));
    }
    let may_be_bare = may_be_bare && unit.is_none();
    let name = unit.unwrap_or(name);
    let (prefix, id) = match name.rsplit_once(['-', ':']) {
        Some((prefix, id)) => (Some(prefix), id),
        None => (None, name),
    };
    let runtime = match (prefix, above) {
        (Some("docker"), _) | (None, "docker") => Some(CgroupMaker::Docker),
        // The last two are namespaces of containerd: that of nerdctl, and that of Kubernetes.
        (Some("cri-containerd" | "nerdctl"), _) | (None, "default" | "k8s.io") => {
            Some(CgroupMaker::Containerd)
        }
        (Some("crio"), _) => Some(CgroupMaker::CriO),
        (Some("libpod" | "libpod-payload"), _) => Some(CgroupMaker::Podman),
        (None, _) if may_be_bare => None,
        _ => return None,
    };
    is_id(id).then_some((runtime, Cow::Borrowed(id)))
}

/// The name of a machine without systemd's escapes, `\x2d` for `-`. Escapes of what cannot be read, which is in no valid
/// name, stay as they are.
fn unescaped(name: &str) -> Cow<'_, str> {
    let mut parts = name.split("\\x");
    let mut text = Cow::Borrowed(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.get(..2).filter(|digits| is_hex(digits));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(u8::is_ascii_graphic) {
            Some(byte) => {
                text.to_mut().push(char::from(byte));
                text.to_mut().push_str(&part[2..]);
            }
            None => {
                text.to_mut().push_str("\\x");
                text.to_mut().push_str(part);
            }
        }
    }
    text
}

fn is_unit(name: &str) -> bool {
    let stem = name.rsplit_once('.');
    stem.is_some_and(|(stem, kind)| {
        !stem.is_empty() && matches!(kind, "service" | "scope" | "slice")
    })
}

/// Returns true for the id of a container.
fn is_id(text: &str) -> bool {
    text.len() == 64 && is_hex(text)
}

/// Returns true for the uid of a pod: a UUID, or the hash of the file of a static pod.
fn is_uid(text: &str) -> bool {
    if text.len() == 32 {
        return is_hex(text);
    }
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.split('-').all(is_hex)
}

/// Returns true for hexadecimal digits as all runtimes write them, in lower case.
fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests;
