// Package installation installs a staged bundle of Kubernetes on the host, and removes it
// again. An installed bundle consists of its files where the manifest says, the units that
// are enabled, and the images in containerd.
//
// A file that is there already is never replaced, unless an installation put it there or the
// plan says so. Then it is set aside in its folder, and put back when the installation is
// removed. So the record, installation.json in the state directory, decides what belongs to an
// installation. It is durable before the first change:
//
//	Installing  each file is missing or complete; Install completes it, Remove removes it
//	Installed   everything is durable
//	Removing    Remove completes it; Install does so first
//
// Whatever a power cut leaves, a file has the recorded digest, so it is the
// installation's, or it has another one, so somebody else has changed it and it stays.
package installation
