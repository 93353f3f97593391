package staging

import "fmt"

// tenths reports progress in steps of a tenth.
type tenths struct {
	verb        string
	done, total int64
	// told is the last tenth that was reported.
	told   int64
	report func(message string)
}

func newTenths(verb string, done, total int64, report func(string)) *tenths {
	t := &tenths{verb: verb, total: max(total, 1), told: -1, report: report}
	t.set(done)
	return t
}

func (t *tenths) add(n int64) { t.set(t.done + n) }

func (t *tenths) set(done int64) {
	t.done = done
	if tenth := done * 10 / t.total; tenth != t.told {
		t.told = tenth
		t.report(fmt.Sprintf("%s %d %% of %d MiB", t.verb, tenth*10, t.total>>20))
	}
}
