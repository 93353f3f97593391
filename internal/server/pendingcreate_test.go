package server_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// overloaded simulates an API server that, while it is late, answers the creation of a host with an error and executes
// the first request or none. Meanwhile the cache shows no hosts.
type overloaded struct {
	late, executes atomic.Bool
	asked          atomic.Int32
}

func (o *overloaded) options(options *server.Options) {
	none := apierrors.NewNotFound(schema.GroupResource{Resource: "elementalhosts"}, "")
	options.Client = interceptor.NewClient(options.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if _, isHost := obj.(*infrav1.ElementalHost); !isHost || !o.late.Load() {
				return c.Create(ctx, obj, opts...)
			}
			if o.asked.Add(1) == 1 && o.executes.Load() {
				if err := c.Create(ctx, obj, opts...); err != nil {
					return err
				}
			}
			return errors.New("it takes too long")
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, areHosts := list.(*infrav1.ElementalHostList); areHosts && o.late.Load() {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, isHost := obj.(*infrav1.ElementalHost); isHost && o.late.Load() {
				return none
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
}

// A key whose host may have been created gets no second host, and uses its token once.
func TestThreat03_EnrolmentOfUnknownOutcome(t *testing.T) {
	for name, executed := range map[string]bool{"executed": true, "not executed": false} {
		for pattern, names := range map[string]string{"": "host-", "{{ .Inventory.SMBIOS.SerialNumber }}": "sn-1"} {
			t.Run(name+" "+pattern, func(t *testing.T) {
				g := NewWithT(t)
				api := &overloaded{}
				h := start(t, api.options)
				h.registration("edge", func(r *infrav1.ElementalRegistration) { r.Spec.HostTemplate.NamePattern = pattern })
				token, secret := h.token("edge")
				a := h.agent()
				api.late.Store(true)
				api.executes.Store(executed)
				g.Expect(a.enrol(token).status).To(BeNumerically(">=", http.StatusInternalServerError))
				// The token is used up by this key.
				g.Expect(h.agent().enrol(token).problem().Type).To(Equal(protocol.ProblemTokenRefused))
				g.Expect(a.enrol(token).status).To(BeNumerically(">=", http.StatusInternalServerError), "the API server is still overloaded")
				api.late.Store(false)
				g.Expect(a.enrol(token).status).To(Equal(http.StatusOK))

				hosts := &infrav1.ElementalHostList{}
				g.Expect(h.admin.List(t.Context(), hosts, client.InNamespace(h.namespace))).To(Succeed())
				g.Expect(hosts.Items).To(HaveLen(1))
				g.Expect(hosts.Items[0].Name).To(And(Equal(a.name), HavePrefix(names)))
				g.Expect(hosts.Items[0].Status.Connection).NotTo(BeNil())
				a.plan("")
				g.Expect(h.admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
				g.Expect(string(secret.Data[enrolment.UsedKey])).To(Equal("1"))
			})
		}
	}
}
