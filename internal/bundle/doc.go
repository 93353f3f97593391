// Package bundle defines what a bundle is, writes one and reads one. A bundle is one file
// with everything of a Kubernetes version that a host needs: programs, systemd units,
// configuration and images, for one architecture.
//
// A bundle is a tar archive, compressed with zstd. Its first entry is bundle.json, the
// Manifest. The other entries are the files that the manifest lists, in the same order,
// each with the size, the mode and the SHA-256 that the manifest says, and nothing else.
//
// Reader reads a bundle as a stream, in constant memory. It refuses everything that Write
// does not write: what a Reader returned without an error up to io.EOF is what the manifest
// lists. A Reader does not know whether a bundle is the wanted one: Verify compares its
// SHA-256 with a pinned one, before anything is unpacked.
//
// The sub-package build makes bundles from a folder, the sub-package stage unpacks them.
package bundle
