package hoststatus

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/preflight"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// prepared returns whether kubeadm works on the host, or will once the bootstrap has installed
// a bundle. The message has one line for each finding. What a Machine needs in addition, such
// as its version, is for package placement to say.
func prepared(host *infrav1.ElementalHost) Verdict {
	inventory := host.Status.Inventory
	if inventory == nil || inventory.Kubernetes == nil {
		return unknown(infrav1.NotReportedReason, "The agent has not reported which programs of Kubernetes the host has; "+
			"if the host is connected and approved, upgrade its agent")
	}
	if installsBundle(host) {
		return preparedByBundle(host)
	}
	found := preflight.Findings(host, preflight.Need{})
	lines := preflight.Messages(found)
	if len(preflight.Blocking(found)) > 0 {
		return Verdict{metav1.ConditionFalse, infrav1.NotPreparedReason, strings.Join(lines, "\n")}
	}
	if host.Spec.Claim == nil {
		lines = append([]string{"For Machines of Kubernetes v" + minorOfPrograms(inventory.Kubernetes)}, lines...)
	}
	return Verdict{metav1.ConditionTrue, infrav1.PreparedReason, strings.Join(lines, "\n")}
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

// minorOfPrograms returns the minor version of Kubernetes that the host has, such as 1.36.
func minorOfPrograms(k *infrav1.HostKubernetes) string {
	parsed, err := version.ParseGeneric(k.Kubelet.Version)
	if err != nil {
		return "" // a finding says so
	}
	return fmt.Sprintf("%d.%d", parsed.Major(), parsed.Minor())
}
