package facts

import (
	"strings"
	"unicode"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// maxProgramVersion bounds the version of a program, in bytes.
const maxProgramVersion = 64

// kubernetesOf converts and bounds the programs of Kubernetes. It returns nil for an agent
// that does not report them.
func kubernetesOf(in *protocol.Kubernetes) *infrav1.HostKubernetes {
	if in == nil {
		return nil
	}
	return &infrav1.HostKubernetes{
		Kubelet:          programOf(in.Kubelet),
		Kubeadm:          programOf(in.Kubeadm),
		Kubectl:          programOf(in.Kubectl),
		ContainerRuntime: containerRuntimeOf(in.ContainerRuntime),
		Runc:             programOf(in.Runc),
		CNIPlugins:       programOf(in.CNIPlugins),
	}
}

// programOf converts a program. A program without a valid path does not exist.
func programOf(in protocol.Program) infrav1.HostProgram {
	path := pathOf(in.Path)
	if path == "" {
		return infrav1.HostProgram{}
	}
	return infrav1.HostProgram{Path: path, Version: word(in.Version, maxProgramVersion), Origin: originOf(in.Origin)}
}

func containerRuntimeOf(in protocol.ContainerRuntime) infrav1.HostContainerRuntime {
	program := programOf(protocol.Program{Path: in.Path, Version: in.Version, Origin: in.Origin})
	if program.Path == "" || in.Name != protocol.RuntimeContainerd && in.Name != protocol.RuntimeCRIO {
		return infrav1.HostContainerRuntime{}
	}
	return infrav1.HostContainerRuntime{
		Name: infrav1.ContainerRuntimeName(in.Name), Path: program.Path, Version: program.Version, Origin: program.Origin,
		Socket: pathOf(in.Socket),
	}
}

func originOf(in protocol.Origin) infrav1.ProgramOrigin {
	switch in {
	case protocol.OriginPackage, protocol.OriginBundle, protocol.OriginOther:
		return infrav1.ProgramOrigin(in)
	default:
		return ""
	}
}

// pathOf returns a path, or "" if it is not absolute or has white space.
func pathOf(in string) string {
	if !strings.HasPrefix(in, "/") {
		return ""
	}
	return word(in, maxText)
}

// word returns a bounded text, or "" if it has white space, because messages of one line a
// finding contain it.
func word(in string, limit int) string {
	if strings.ContainsFunc(in, unicode.IsSpace) {
		return ""
	}
	return bounded(in, limit)
}
