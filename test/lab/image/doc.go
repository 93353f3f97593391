// Package image makes what lab hosts run, from Debian packages and from programs built by test/tools/toolset: the root
// file system of a host and the container images of Kubernetes, which are put into the host's containerd beforehand, as
// no registry need be reachable. Everything is cached under a hash of what it is made from.
package image
