// Package software finds the programs of Kubernetes on a host: where they are, which
// version they are, and whether they came with a bundle or a package of the operating system
// owns them.
//
// A program is looked for where the host would start it: where its systemd unit says, and in
// PATH. It is run once to print its version, and again only when its file has changed.
package software
