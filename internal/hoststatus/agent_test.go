package hoststatus_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// The conditions of the agent are absent while nothing is known, and do not affect whether
// a host is available.
func TestConditionsOfTheAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		change         func(*infrav1.ElementalHost)
		clock, current string
	}{
		"no agent reported":           {func(*infrav1.ElementalHost) {}, "", ""},
		"clock right, nothing pinned": {agent(func(*infrav1.HostAgent) {}), "True ClockSynchronized", ""},
		"clock ahead":                 {skewed(7200), "False ClockSkewed", ""},
		"clock behind":                {skewed(-60), "False ClockSkewed", ""},
		"updating":                    {updated("v2.0.0", running), "True ClockSynchronized", "False AgentUpdating"},
		"updated":                     {updated("v1.0.0", succeeded), "True ClockSynchronized", "True AgentCurrent"},
		"on trial":                    {updated("v1.0.0", running), "True ClockSynchronized", "False AgentUpdating"},
		"replaced by hand since":      {updated("v2.0.0", succeeded), "True ClockSynchronized", ""},
		"installed by hand after a failed update": {updated("v1.0.0", failed), "True ClockSynchronized", "True AgentCurrent"},
		"update failed":      {updated("v2.0.0", failed), "True ClockSynchronized", "False AgentUpdateFailed"},
		"update unsupported": {updated("v2.0.0", infrav1.OperationUnsupported), "True ClockSynchronized", "False AgentUpdateFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := host(skewed(60), updated("v9", failed))
			hoststatus.Update(h, now)
			h.Status.Agent = nil
			tc.change(h)
			hoststatus.Update(h, now)
			summary := func(conditionType string) string {
				c := meta.FindStatusCondition(h.Status.Conditions, conditionType)
				if c == nil {
					return ""
				}
				return string(c.Status) + " " + c.Reason
			}
			g.Expect([]string{summary(infrav1.ClockSynchronizedCondition), summary(infrav1.AgentCurrentCondition)}).To(Equal([]string{tc.clock, tc.current}))
			g.Expect(hoststatus.Available(h).IsTrue()).To(BeTrue())
			before := h.DeepCopy()
			hoststatus.Update(h, metav1.NewTime(now.Add(time.Hour)))
			g.Expect(h).To(Equal(before))
		})
	}
}
