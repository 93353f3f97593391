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

// addLogged remembers a host whose log is there. No other Secret is ever read, whatever the
// status says.
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
	host := &infrav1.ElementalHost{Status: infrav1.ElementalHostStatus{Log: log}}
	host.Namespace, host.Name, host.UID = is.Namespace, is.Name, is.UID
	w.logged = append(w.logged, host)
}

func logFile(host string) string { return "hosts/" + host + ".log" }

// hostLogs writes the logs that hosts have sent already. None is asked for: dead hosts do not
// answer.
func (w *collection) hostLogs(ctx context.Context) error {
	texts, count := redact.ForOutput(), 0
	for i, host := range w.logged {
		name := logFile(host.Name)
		if i >= maxHostLogs {
			w.lacks(name, errFull)
			continue
		}
		err := w.part(ctx, name, func(ctx context.Context, f *file) error {
			log, err := hostlog.Read(ctx, w.Client, host, host.Status.Log)
			if err != nil {
				return err
			}
			count++
			text, _ := texts.Text(string(log))
			return f.append([]byte(text))
		})
		if err != nil {
			return err
		}
	}
	w.counts = append(w.counts, fmt.Sprintf("Logs of hosts: %d", count))
	return nil
}
