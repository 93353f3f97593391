package main

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestEventsAreClipped(t *testing.T) {
	const begin = "The bootstrap failed: "
	fits := strings.Repeat("a", maxNote-len(begin))
	for name, tc := range map[string]struct{ message, want string }{
		"short":                  {"100 %s", begin + "100 %s"},
		"as long as may be":      {fits, begin + fits},
		"a byte too long":        {fits + "a", begin + fits[:len(fits)-3] + "…"},
		"in a character of two":  {"a" + strings.Repeat("ä", maxNote), begin + "a" + strings.Repeat("ä", (maxNote-len(begin)-4)/2) + "…"},
		"in a character of four": {strings.Repeat("😀", maxNote), begin + strings.Repeat("😀", (maxNote-len(begin)-3)/4) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			fake := events.NewFakeRecorder(1)
			recorder{fake}.Eventf(&infrav1.ElementalHost{}, nil, corev1.EventTypeWarning, "Reason", "Report", begin+"%s", tc.message)
			got := strings.TrimPrefix(<-fake.Events, "Warning Reason ")
			g.Expect(got).To(Equal(tc.want))
			g.Expect(len(got)).To(BeNumerically("<=", maxNote))
			g.Expect(utf8.ValidString(got)).To(BeTrue())
		})
	}
}

// testLongEvents makes a host report a failure with the longest message.
func (r *rig) testLongEvents(t *testing.T) {
	g := NewWithT(t)
	host := r.Host("talkative", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "x", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound, Role: infrav1.RoleWorker}
	})
	controllertest.ChangeStatus(r.Fixture, host, func(h *infrav1.ElementalHost) {
		controllertest.SetOperation(&h.Status, infrav1.HostOperation{
			Type: infrav1.OperationBootstrap, ID: "x", State: infrav1.OperationFailed, Message: strings.Repeat("ä", protocol.MaxMessageBytes/2),
		})
	})
	notes := func() ([]string, error) {
		list := &eventsv1.EventList{}
		if err := r.Admin.List(t.Context(), list, ctrlclient.InNamespace(r.Namespace)); err != nil {
			return nil, fmt.Errorf("listing Events: %w", err)
		}
		var out []string
		for _, e := range list.Items {
			if e.Regarding.Name == host.Name && e.Reason == infrav1.BootstrapFailedReason {
				out = append(out, e.Note)
			}
		}
		return out, nil
	}
	g.Eventually(notes).WithTimeout(soon).Should(ConsistOf(HavePrefix("The bootstrap failed: ää")))
}
