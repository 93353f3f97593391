// Package image builds the software of lab hosts from Debian packages and from programs of
// test/tools/toolset: the root file system of a host and the container images of Kubernetes. The
// images are preloaded into the host's containerd, so no registry is needed. Results are cached
// under a hash of their inputs.
package image
