// Package staging keeps a bundle of Kubernetes on the host's disk: fetched, verified and
// unpacked, so that an operation can install it without waiting for the network.
//
// The folder has, for at most one bundle at a time:
//
//	SHA256        the unpacked bundle; see package stage
//	SHA256.part   what was fetched of it, until it is unpacked
//
// Whatever a power cut leaves there is safe: what was fetched is verified before it is
// unpacked, and what was unpacked is verified before its first use after a restart. A
// download continues where it ended, from any source: the digest shows whether the
// parts fit together.
package staging
