package support

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/hostlog"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/redact"
)

// maxHostLogs is the number of hosts whose logs are read.
const maxHostLogs = 100

// addLogged remembers a host whose log is there, unless another cluster than that of the bundle has
// the host. No other Secret is ever read, whatever the status says.
func (w *collection) addLogged(o *unstructured.Unstructured) {
	is := &infrav1.ElementalHost{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, is); err != nil {
		w.lacks(logFile(o.GetName()), err)
		return
	}
	log := is.Status.Log
	if log == nil || log.SecretName != infrav1.LogSecretName(is) || !w.Now.Before(log.ExpiresAt.Time) {
		return
	}
	if claim := is.Spec.Claim; w.scope.Cluster != "" && claim != nil && claim.ClusterName != w.scope.Cluster {
		return
	}
	host := &infrav1.ElementalHost{Status: infrav1.ElementalHostStatus{Log: log}}
	host.Namespace, host.Name, host.UID = is.Namespace, is.Name, is.UID
	w.logged = append(w.logged, host)
}

func logFile(host string) string { return "hosts/" + host + ".log" }

// hostLogs writes the logs that hosts have sent already. None is asked for: dead hosts do not
// answer. All of them together may take as long as one part.
func (w *collection) hostLogs(ctx context.Context) error {
	texts, count := redact.ForOutput(), 0
	limited, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	for i, host := range w.logged {
		name := logFile(host.Name)
		if i >= maxHostLogs {
			w.lacks(name, errFull)
			continue
		}
		err := w.part(ctx, name, func(_ context.Context, f *file) error {
			log, err := hostlog.Read(limited, w.Client, host, host.Status.Log)
			if err != nil {
				return err
			}
			text, _ := texts.Text(string(log))
			if err := f.append([]byte(text)); err != nil {
				return err
			}
			count++
			return nil
		})
		if err != nil {
			return err
		}
	}
	w.counts = append(w.counts, fmt.Sprintf("Logs of hosts: %d", count))
	return nil
}
