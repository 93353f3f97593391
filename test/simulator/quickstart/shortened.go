package quickstart

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Times that a demonstration shortens. Their defaults are for sites whose network comes and goes.
const (
	// bootTime is a host's.
	bootTime = 2 * time.Second
	// failoverSeconds is ElementalCluster's spec.controlPlaneEndpointPolicy.host.failover.afterSeconds, 300 by default.
	failoverSeconds = 15
	// releaseSeconds is ElementalMachine's spec.release.disconnectedTimeoutSeconds, 300 by default.
	releaseSeconds = 15
	// unhealthySeconds is MachineHealthCheck's timeoutSeconds, 300 in the template.
	unhealthySeconds = 10
	// recoverySeconds is ElementalRemediation's, 300 in the template.
	recoverySeconds = 10
)

// silence are the manager's settings by which it knows that a host is silent after 15 seconds rather than 180,
// or 315 behind a proxy.
func silence() []string {
	return []string{"--agent-ping-interval=5s", "--agent-ping-timeout=5s", "--agent-disconnect-grace=5s"}
}

// shorten changes the default template's objects.
func shorten(object *unstructured.Unstructured) error {
	var err error
	switch object.GetKind() {
	case "ElementalCluster":
		err = unstructured.SetNestedField(object.Object, int64(failoverSeconds), "spec", "controlPlaneEndpointPolicy", "host", "failover", "afterSeconds")
	case "ElementalMachineTemplate":
		err = unstructured.SetNestedField(object.Object, int64(releaseSeconds), "spec", "template", "spec", "release", "disconnectedTimeoutSeconds")
	}
	if err != nil {
		return fmt.Errorf("shortening the times of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}
