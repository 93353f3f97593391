// Package cloudinit compares the agent with Debian's cloud-init. Both execute the
// documents that bootstrap providers emit, each in a new container of the lab's host
// image. The test compares files with owner, mode and content, users, and the order,
// environment, working directory and failures of commands.
//
//	go test -tags e2e ./test/suite/cloudinit
package cloudinit
