package conversion_test

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilconversion "sigs.k8s.io/cluster-api/util/conversion"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// TestRoundTrips: random hosts of either version come back as they were. Cluster API's own test
// tries ten thousand, which takes half a minute for this kind.
func TestRoundTrips(t *testing.T) {
	g, ctx, rounds := NewWithT(t), t.Context(), 5000
	if testing.Short() {
		rounds = 300
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(infrav1.AddToScheme(scheme))
	addNewer(scheme)
	random := utilconversion.GetFuzzer(scheme)
	annotated := 0
	for range rounds {
		newBefore, newBack, old := &ElementalHost{}, &ElementalHost{}, &infrav1.ElementalHost{}
		random.Fill(newBefore)
		newBefore.Spec.Reboot = nil
		g.Expect(convertToOlder(ctx, newBefore, old)).To(Succeed())
		if metav1.HasAnnotation(old.ObjectMeta, utilconversion.DataAnnotation) {
			annotated++
		}
		g.Expect(convertToNewer(ctx, old, newBack)).To(Succeed())
		newBack.TypeMeta = newBefore.TypeMeta
		g.Expect(newBack).To(BeComparableTo(newBefore, cmpopts.EquateEmpty()))

		oldBefore, oldBack, converted := &infrav1.ElementalHost{}, &infrav1.ElementalHost{}, &ElementalHost{}
		random.Fill(oldBefore)
		g.Expect(convertToNewer(ctx, oldBefore, converted)).To(Succeed())
		g.Expect(convertToOlder(ctx, converted, oldBack)).To(Succeed())
		oldBack.TypeMeta = oldBefore.TypeMeta
		g.Expect(oldBack).To(BeComparableTo(oldBefore, cmpopts.EquateEmpty()))
	}
	g.Expect(annotated).To(BeNumerically(">", rounds/8), "too few hosts had what v1beta2 lacks")
}

// TestMeaning: what v1beta2 shows of a list, and what becomes of the list when a client of v1beta2
// writes.
func TestMeaning(t *testing.T) {
	ctx := t.Context()
	a, b := Reboot{ID: "a", RestoreName: "r"}, Reboot{ID: "b"}
	why := Reboot{ID: "a", RestoreName: "r", Reason: "firmware"}
	shown := &infrav1.HostReboot{ID: "a", RestoreName: "r"}
	for name, c := range map[string]struct {
		list      []Reboot
		shown     *infrav1.HostReboot
		annotated bool
		// write is what the client writes; want is the list then.
		write *infrav1.HostReboot
		want  []Reboot
	}{
		"none":                {},
		"none, then one":      {write: shown, want: []Reboot{a}},
		"one":                 {list: []Reboot{a}, shown: shown, write: shown, want: []Reboot{a}},
		"one with a reason":   {list: []Reboot{why}, shown: shown, annotated: true, write: shown, want: []Reboot{why}},
		"two":                 {list: []Reboot{a, b}, shown: shown, annotated: true, write: shown, want: []Reboot{a, b}},
		"two, forgotten":      {list: []Reboot{a, b}, shown: shown, annotated: true},
		"two, then another":   {list: []Reboot{why, b}, shown: shown, annotated: true, write: &infrav1.HostReboot{ID: "c"}, want: []Reboot{{ID: "c"}}},
		"two, then no name":   {list: []Reboot{why, b}, shown: shown, annotated: true, write: &infrav1.HostReboot{ID: "a"}, want: []Reboot{{ID: "a"}}},
		"two, then the other": {list: []Reboot{a, b}, shown: shown, annotated: true, write: &infrav1.HostReboot{ID: "b"}, want: []Reboot{b}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			from := &ElementalHost{Spec: ElementalHostSpec{Reboots: c.list}}
			old, back := &infrav1.ElementalHost{}, &ElementalHost{}
			g.Expect(convertToOlder(ctx, from, old)).To(Succeed())
			g.Expect(old.Spec.Reboot).To(Equal(c.shown))
			g.Expect(metav1.HasAnnotation(old.ObjectMeta, utilconversion.DataAnnotation)).To(Equal(c.annotated))
			old.Spec.Reboot = c.write
			g.Expect(convertToNewer(ctx, old, back)).To(Succeed())
			g.Expect(back.Spec.Reboots).To(Equal(c.want))
			g.Expect(back.Annotations).To(BeEmpty())
		})
	}
}
