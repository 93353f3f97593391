package session

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// lastPlan is the revision of a host's last plan and the inputs it was computed from.
// A new poll usually finds the same inputs, and computing the plan of a control-plane
// host with kube-vip's manifest takes a millisecond.
type lastPlan struct {
	inputs   PlanInputs
	revision string
}

// PlanInputs identifies everything that a plan is computed from. It is comparable.
type PlanInputs struct {
	host, infra         objectVersion
	infraKnown, others  bool
	paused, fallback    bool
	isRegistrationKnown bool
	// backends and providerIDs are separated by spaces.
	backends, providerIDs   string
	version, bundle, server string
	// agent and successor point into the cached registration: a change of the registration
	// changes the pointers.
	agent     *infrav1.AgentRelease
	successor *infrav1.RegistrationSuccessor
}

// objectVersion identifies one state of an object.
type objectVersion struct {
	uid     types.UID
	version string
}

// PlanInputsOf returns the inputs of plan.For.
func PlanInputsOf(host *infrav1.ElementalHost, site plan.Site, cluster plan.Cluster) PlanInputs {
	inputs := PlanInputs{
		host: objectVersion{host.UID, host.ResourceVersion}, infraKnown: cluster.Infra != nil, others: cluster.OtherControlPlane,
		paused: cluster.Paused, fallback: cluster.Fallback, backends: strings.Join(cluster.Backends, " "), providerIDs: strings.Join(cluster.ProviderIDs, " "),
		version: cluster.KubernetesVersion, bundle: site.TrustBundle, server: strings.Join(site.Servers, " "), agent: site.Agent, successor: site.Successor, isRegistrationKnown: !site.UnknownRegistration,
	}
	if cluster.Infra != nil {
		inputs.infra = objectVersion{cluster.Infra.UID, cluster.Infra.ResourceVersion}
	}
	return inputs
}

// PlanRevision returns the revision of the host's last plan if it had the same inputs,
// else an empty string.
func (t *Tracker) PlanRevision(host types.NamespacedName, inputs PlanInputs) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[host]; s != nil && s.lastPlan.inputs == inputs {
		return s.lastPlan.revision
	}
	return ""
}

// SetPlanRevision remembers the revision of the host's last plan.
func (t *Tracker) SetPlanRevision(host types.NamespacedName, inputs PlanInputs, revision string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[host]; s != nil {
		s.lastPlan = lastPlan{inputs: inputs, revision: revision}
	}
}
