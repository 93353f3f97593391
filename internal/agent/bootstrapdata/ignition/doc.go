// Package ignition parses Ignition configurations of the specifications 2.x and
// 3.x. The kubeadm bootstrap provider writes 2.3.
//
// Ignition configures a system before it boots. A setting that a running system
// cannot apply (disks, kernel arguments, wiping) is an error that names the reason.
// Sources other than data URLs are not fetched. Package parser calls it. It
// performs no I/O.
package ignition
