package quickstart

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Timeouts that the demonstration shortens. The defaults are for sites with unreliable networks.
const (
	// bootTime is how long a host boots.
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
func connectionFlags() []string {
	return []string{"--agent-ping-interval=5s", "--agent-ping-timeout=5s", "--agent-disconnect-grace=5s"}
}

// shorten sets short timeouts in the objects of the default template.
func shorten(object *unstructured.Unstructured) error {
	if object.GetKind() != "ElementalCluster" {
		return shortenRelease(object)
	}
	return set(object, failoverSeconds, "spec", "controlPlaneEndpointPolicy", "host", "failover", "afterSeconds")
}

// shortenRelease is shorten for a template whose endpoint does not move.
func shortenRelease(object *unstructured.Unstructured) error {
	if object.GetKind() != "ElementalMachineTemplate" {
		return nil
	}
	return set(object, releaseSeconds, "spec", "template", "spec", "release", "disconnectedTimeoutSeconds")
}

func set(object *unstructured.Unstructured, seconds int64, field ...string) error {
	if err := unstructured.SetNestedField(object.Object, seconds, field...); err != nil {
		return fmt.Errorf("shortening the times of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}
