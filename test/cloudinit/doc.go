// Package cloudinit compares the agent with Debian's cloud-init, each in a
// throw-away container of the lab's host image, on the documents that bootstrap
// providers emit: files with owner, mode and bytes, users, the order of
// commands, what follows a failing one, and their environment and directory.
//
//	go test -tags e2e ./test/cloudinit
package cloudinit
