// Bundle builds bundles, from which hosts get a version of Kubernetes, and shows what is in
// one. See bundle --help and docs/bundles.md.
package main
