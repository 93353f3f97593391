// Package elemental is the agent's back end for Elemental OS: it upgrades, resets
// and installs the operating system by driving the elemental CLI of
// elemental-toolkit, v1 and v2.
//
// What it relies on, with the place in https://github.com/rancher/elemental-toolkit
// that says so:
//
//   - Boot markers /run/elemental/{active,passive,recovery}_mode, live_mode on
//     live media; older systems have them in /run/cos (pkg/constants).
//   - state.yaml in /run/initramfs/elemental-state, formerly cos-state, names the
//     image of each deployed system, and is written as the last step of an install,
//     an upgrade and a reset (pkg/action, pkg/types/config.go).
//   - Sources are given in the environment, ELEMENTAL_UPGRADE_SYSTEM and
//     ELEMENTAL_INSTALL_SYSTEM (pkg/constants, Get…KeyEnvMap): the flag's name
//     changed from --system.uri to --system, the variable's did not.
//   - "elemental reset" only works in the recovery system, formats the state
//     partition, with --reset-persistent the persistent one, leaves the OEM
//     partition alone but unmounts it (pkg/action/reset.go). Therefore the agent
//     keeps its state in the OEM partition, and holds nothing open there meanwhile.
//   - The boot loader reads next_entry from /oem/grubenv, once (docs, "Grub
//     environment variables").
//
// Whether an upgrade or a reset took place is never taken from the CLI's exit
// status alone: state.yaml has to have changed, and after the boot the marker has
// to say that the new system runs.
package elemental
