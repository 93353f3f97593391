package inplace

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
)

const (
	// localModeGate is a feature gate of kubeadm that KubeadmControlPlane sets by itself for
	// versions below localModeMinor. kubeadm has no such gate from that version on: the
	// feature is always on.
	localModeGate  = "ControlPlaneKubeletLocalMode"
	localModeMinor = 36

	clusterConfiguration = "clusterConfiguration"
	featureGates         = "featureGates"
)

// bootstrapObstacle accepts only what KubeadmControlPlane itself changes with the version.
// Everything else in a bootstrap configuration takes effect only when a host is bootstrapped.
func (c Change) bootstrapObstacle() string {
	kind := c.To.BootstrapKind
	switch {
	case c.From.BootstrapKind != kind:
		return "the kind of the bootstrap configuration can't be changed in place"
	case c.Target() != Target{} && kind == "":
		return "the Machine has no KubeadmConfig, so it is unknown whether kubeadm made its Node"
	case c.Target() != Target{} && strings.TrimSuffix(kind, "Template") != "KubeadmConfig":
		return "the bootstrap configuration is a " + kind + "; only Nodes that kubeadm made can be upgraded"
	}
	from, to := c.From.Bootstrap, c.To.Bootstrap
	if obstacle := patchesObstacle(from); c.NewVersion() && obstacle != "" {
		return obstacle
	}
	if crosses(c.From.Machine.Version, c.To.Machine.Version, localModeMinor) && !hasLocalMode(to) {
		from = withoutLocalMode(from)
	}
	return differs(kind, difference("spec", from, to))
}

// patchesFolder is what the API of ElementalHosts accepts.
var patchesFolder = regexp.MustCompile(`^(/[A-Za-z0-9_@+=:-][A-Za-z0-9_@+=:.-]*)+$`)

// PatchesDirectory returns the folder of kubeadm's patches in a bootstrap configuration; blank
// for none. An error says what is wrong with it.
func PatchesDirectory(spec bootstrapv1.KubeadmConfigSpec) (string, error) {
	folder := cmp.Or(spec.JoinConfiguration.Patches.Directory, spec.InitConfiguration.Patches.Directory)
	return folder, checkPatches(folder)
}

func checkPatches(folder string) error {
	if folder != "" && (len(folder) > 256 || !patchesFolder.MatchString(folder)) {
		return errors.New("patches.directory of the KubeadmConfig must be an absolute path with at most 256 letters, digits and _ @ + = : . -, and no part of it may begin with a dot")
	}
	return nil
}

// patchesObstacle refuses what can't be requested of a host.
func patchesObstacle(spec map[string]any) string {
	for _, configuration := range []string{"initConfiguration", "joinConfiguration"} {
		folder, _ := child(child(spec, configuration), "patches")["directory"].(string)
		if err := checkPatches(folder); err != nil {
			return fmt.Sprintf("spec.%s: %v", configuration, err)
		}
	}
	return ""
}

func hasLocalMode(spec map[string]any) bool {
	_, found := child(child(spec, clusterConfiguration), featureGates)[localModeGate]
	return found
}

// withoutLocalMode returns a copy of the spec without the gate.
func withoutLocalMode(spec map[string]any) map[string]any {
	if !hasLocalMode(spec) {
		return spec
	}
	configuration := maps.Clone(child(spec, clusterConfiguration))
	gates := maps.Clone(child(configuration, featureGates))
	delete(gates, localModeGate)
	configuration[featureGates] = gates
	spec = maps.Clone(spec)
	spec[clusterConfiguration] = configuration
	return spec
}

// child returns the object in that field; nil if it is missing.
func child(object map[string]any, field string) map[string]any {
	value, _ := object[field].(map[string]any)
	return value
}
