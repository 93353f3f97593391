// Package host is the agent's port to a Linux host with systemd: what it is,
// what it is called, how it is rebooted, and how it is brought back to what it
// was before it became a node.
//
// A host counts as clean when none of the following is found. Each is what the
// next bootstrap would trip over, or what would let the old node live on:
//
//   - processes: a kubelet, k3s or RKE2, or a container of Kubernetes
//   - mounts of pods, their network namespaces and their containers
//   - files: credentials, static pods and certificates in /etc/kubernetes, the
//     kubelet's configuration and pods, etcd's data, the databases and
//     credentials of k3s and RKE2, address leases of CNI plugins
//   - cgroups of pods, which are there until the host reboots
//   - network interfaces that CNI plugins and kube-proxy make
//   - chains and tables of kube-proxy and of CNI plugins in the packet filter
//   - what was done for the endpoint of the cluster: the control plane's virtual
//     address, the refusal of a former endpoint, static Pods
//
// Images, container runtimes, CNI binaries and CNI configuration that came
// with the operating system are not leftovers: a golden image may carry them.
package host
