// Package elemental adds to package linux what differs on Elemental OS: it upgrades,
// resets and installs the operating system with the elemental CLI of
// elemental-toolkit, v1 and v2. The agent's program uses it if it detects Elemental
// OS.
//
// The package relies on these facts; the source in
// https://github.com/rancher/elemental-toolkit is in brackets:
//
//   - Boot markers are /run/elemental/{active,passive,recovery}_mode, and live_mode
//     on live media; older systems have them in /run/cos (pkg/constants).
//   - state.yaml in /run/initramfs/elemental-state, formerly cos-state, names the
//     image of each deployed system. It is written in the last step of an install,
//     an upgrade and a reset (pkg/action, pkg/types/config.go).
//   - The environment variables ELEMENTAL_UPGRADE_SYSTEM and
//     ELEMENTAL_INSTALL_SYSTEM name the source (pkg/constants, Get…KeyEnvMap). The
//     flag was renamed from --system.uri to --system, the variables were not.
//   - "elemental reset" works only in the recovery system. It formats the state
//     partition, and with --reset-persistent the persistent one. It does not format
//     the OEM partition but unmounts it (pkg/action/reset.go). Therefore the agent's
//     state is on the OEM partition, and the agent keeps no file there open
//     during a reset.
//   - The boot loader reads next_entry from /oem/grubenv for one boot (docs, "Grub
//     environment variables").
//
// The CLI's exit status does not prove an upgrade or a reset: state.yaml must have
// changed, and after the boot the marker must show that the new system runs.
package elemental
