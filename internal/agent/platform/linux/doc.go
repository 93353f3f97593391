// Package linux implements platform.Platform on any Linux with systemd. The
// agent's program creates one Platform and passes it to the run loop and the
// operations. The package must not depend on the manager or on operations.
//
// A host counts as clean if it has none of the following. Each of them makes
// the next bootstrap fail or keeps the former node alive:
//
//   - processes: a kubelet, k3s or RKE2, or a Kubernetes container
//   - mounts of Pods, of their network namespaces and of their containers
//   - files: credentials, static Pods and certificates in /etc/kubernetes, the
//     kubelet's configuration and Pods, etcd's data, the databases and
//     credentials of k3s and RKE2, address leases of CNI plugins
//   - cgroups of Pods, which exist until the host reboots
//   - network interfaces that CNI plugins and kube-proxy create
//   - packet filter chains and tables of kube-proxy and of CNI plugins
//   - endpoint leftovers: the virtual address of a control plane, the rule that
//     rejects a former endpoint, static Pods
//   - a bundle of Kubernetes that the agent has installed
//
// Images, container runtimes, CNI binaries and CNI configuration that came
// with the operating system are not leftovers: a golden image may contain them.
package linux
