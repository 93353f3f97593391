package hoststatus

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// prepared returns whether the host has the programs of Kubernetes that kubeadm needs, or gets
// them from a bundle. The message has one line for each finding. Nothing depends on it:
// bootstrap data may install what is missing.
func prepared(host *infrav1.ElementalHost) Verdict {
	inventory := host.Status.Inventory
	if inventory == nil || inventory.Kubernetes == nil {
		return unknown(infrav1.NotReportedReason, "The agent has not reported which programs of Kubernetes the host has; "+
			"if the host is connected and approved, upgrade its agent")
	}
	if installsBundle(host) {
		return preparedByBundle(host)
	}
	if found := findings(inventory.Kubernetes); len(found) > 0 {
		return Verdict{metav1.ConditionFalse, infrav1.NotPreparedReason, strings.Join(found, "\n")}
	}
	return yes(infrav1.PreparedReason)
}

// installsBundle reports whether the bootstrap of the host installs its bundle.
func installsBundle(host *infrav1.ElementalHost) bool {
	return host.IsBoundOrHeld() && host.Spec.Bundle != nil && host.Supports(infrav1.OperationType(protocol.CapabilityBundle)) &&
		(len(host.MissingPrograms()) > 0 || host.ReplacesPrograms())
}

// preparedByBundle returns the verdict on a host whose bootstrap installs its bundle. It names
// the versions of programs that the host keeps.
func preparedByBundle(host *infrav1.ElementalHost) Verdict {
	lack, version, kept := strings.Join(host.MissingPrograms(), ", ")+": missing", host.Spec.Bundle.Version, ""
	if host.ReplacesPrograms() {
		lack = "The programs of the host are to be replaced"
	} else {
		kept = otherVersions(host.Status.Inventory.Kubernetes, version)
	}
	state := "the host has yet to fetch"
	if staged := host.StagedBundle(); staged != nil {
		switch staged.State {
		case infrav1.BundleStaged:
			state = "is staged"
		case infrav1.BundleFailed:
			return no(infrav1.NotPreparedReason, "%s, and the bundle of Kubernetes %s can't be staged%s", lack, version, after(": ", staged.Message))
		case infrav1.BundleStaging:
		}
	}
	return Verdict{metav1.ConditionTrue, infrav1.PreparedByBundleReason,
		fmt.Sprintf("%s; the bootstrap installs the bundle of Kubernetes %s, which %s%s", lack, version, state, kept)}
}

// otherVersions returns a line for each program of the host that has another version than the
// bundle.
func otherVersions(k *infrav1.HostKubernetes, version string) (lines string) {
	for _, program := range []struct{ name, version string }{{"kubeadm", k.Kubeadm.Version}, {"kubelet", k.Kubelet.Version}} {
		if program.version != "" && program.version != version {
			lines += fmt.Sprintf("\n%s of the host is %s", program.name, program.version)
		}
	}
	return lines
}

// findings returns what keeps kubeadm from working on the host.
func findings(k *infrav1.HostKubernetes) []string {
	var found []string
	kubelet, problem := minorOf("kubelet", k.Kubelet)
	found = append(found, problem...)
	kubeadm, problem := minorOf("kubeadm", k.Kubeadm)
	found = append(found, problem...)
	if k.ContainerRuntime.Path == "" {
		found = append(found, "A container runtime is missing: install containerd or CRI-O")
	}
	if kubelet != "" && kubeadm != "" && kubelet != kubeadm {
		found = append(found, fmt.Sprintf("kubelet is %s and kubeadm is %s: install both of the same minor version", k.Kubelet.Version, k.Kubeadm.Version))
	}
	return found
}

// minorOf returns the minor version of a program, such as 1.36, or what is wrong with it.
func minorOf(name string, program infrav1.HostProgram) (minor string, problem []string) {
	if program.Path == "" {
		return "", []string{name + " is missing: install it"}
	}
	parsed, err := version.ParseGeneric(program.Version)
	if err != nil {
		return "", []string{fmt.Sprintf("%s (%s) prints no version: check whether it runs, or install it again", name, program.Path)}
	}
	return fmt.Sprintf("%d.%d", parsed.Major(), parsed.Minor()), nil
}
