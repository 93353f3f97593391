package software

import (
	"regexp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// program is a program to look for.
type program struct {
	name string
	// unit is the systemd unit that starts it; blank for programs that no unit starts.
	unit string
	// args make it print its version.
	args []string
	// version is the pattern of a line that it prints, with the version as its group.
	version string
}

// versionIn returns the version in the program's output, or "".
func (p program) versionIn(output string) string {
	match := regexp.MustCompile(`(?m)^` + p.version).FindStringSubmatch(output)
	if match == nil {
		return ""
	}
	return match[1]
}

func kubelet() program {
	return program{name: "kubelet", unit: "kubelet.service", args: []string{"--version"}, version: `Kubernetes (v\d\S*)`}
}

func kubeadm() program {
	return program{name: "kubeadm", args: []string{"version", "--output", "short"}, version: `(v\d\S*)$`}
}

// kubectl before v1.28 prints the version as a Go struct.
func kubectl() program {
	return program{name: "kubectl", args: []string{"version", "--client"}, version: `Client Version: (?:.*GitVersion:")?(v\d[^\s",]*)`}
}

func runc() program {
	return program{name: "runc", args: []string{"--version"}, version: `runc version (\S+)`}
}

// loopback prints its version to its error output, if it knows one.
func loopback() program {
	return program{name: "loopback", version: `CNI loopback plugin (v?\d\S*)`}
}

// containerRuntime is a container runtime to look for.
type containerRuntime struct {
	name    protocol.RuntimeName
	program program
	// socket is the default of its setting in section and key of its configuration files.
	socket       string
	files        []string
	section, key string
}

func runtimes() []containerRuntime {
	return []containerRuntime{
		{
			name: protocol.RuntimeContainerd,
			program: program{
				name: "containerd", unit: "containerd.service", args: []string{"--version"}, version: `containerd \S+ (v?\d\S*)`,
			},
			socket: "/run/containerd/containerd.sock", files: []string{"/etc/containerd/config.toml"}, section: "grpc", key: "address",
		},
		{
			name: protocol.RuntimeCRIO,
			program: program{
				name: "crio", unit: "crio.service", args: []string{"--version"}, version: `crio version (v?\d\S*)`,
			},
			socket: "/run/crio/crio.sock", files: []string{"/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"}, section: "crio.api", key: "listen",
		},
	}
}
