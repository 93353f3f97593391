package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// wantedLabels returns the labels that a host needs so that the term does not rule it out, as
// kubectl label takes them; blank if labels do not help, or if the selector leaves a choice. A
// Machine's failure domain can be any text, also one that a shell would run.
func wantedLabels(c placement.Constraints, host *infrav1.ElementalHost, term placement.Term) string {
	wanted := map[string]string{}
	switch {
	case term.Reason == placement.WrongFailureDomain:
		wanted[c.FailureDomainLabel] = c.FailureDomain
	case term.Field == string(selector.Labels):
		wanted = c.Selector.Required()
	}
	labelled := &infrav1.ElementalHost{}
	labelled.Labels = maps.Clone(host.Labels)
	if labelled.Labels == nil {
		labelled.Labels = map[string]string{}
	}
	maps.Copy(labelled.Labels, wanted)
	if c.Selector.Why(labelled).Field == selector.Labels {
		return ""
	}
	var changes []string
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(wanted[key])) > 0 {
			return ""
		}
		if value, ok := host.Labels[key]; !ok || value != wanted[key] {
			changes = append(changes, key+"="+wanted[key])
		}
	}
	return strings.Join(changes, " ")
}

// enrolment says how a namespace without hosts gets some.
func (e *Explainer) enrolment(ctx context.Context, namespace string) (string, error) {
	const none = "There are no hosts in the namespace. Have hosts granted to it, or enrol some: "
	enrol := func(registration string) string {
		return fmt.Sprintf("run `kubectl elemental enrol %s --for shell -n %s`, and run what it prints as root on the machine", registration, namespace)
	}
	list := &infrav1.ElementalRegistrationList{}
	err := e.Client.List(ctx, list, client.InNamespace(namespace), client.Limit(1))
	switch {
	case apierrors.IsForbidden(err):
		return none + enrol("REGISTRATION"), nil
	case err != nil:
		return "", fmt.Errorf("listing ElementalRegistrations: %w", err)
	case len(list.Items) == 0:
		manifest := fmt.Sprintf(`{"apiVersion":%q,"kind":"ElementalRegistration","metadata":{"name":"hosts"}}`, infrav1.GroupVersion)
		return none + fmt.Sprintf("create an ElementalRegistration by echo '%s' | kubectl -n %s create -f -; then ", manifest, namespace) + enrol("hosts"), nil
	default:
		return none + enrol(list.Items[0].Name), nil
	}
}
