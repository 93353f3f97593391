package forward

import "slices"

// maxFailures is how many checks in a row must fail before a backend is sick.
const maxFailures = 2

// backends decides in which order API servers are tried.
type backends struct {
	// planned are those of other hosts.
	planned []string
	// good is the one of them that was connected to last.
	good string
	// last is the backend that was connected to last, also the host's own.
	last string
	// failures counts the failed checks in a row of each backend.
	failures map[string]int
}

func (b *backends) set(planned []string, own string) {
	b.planned = slices.Clone(planned)
	b.forgetRemoved(own)
}

// forgetRemoved drops what is known of backends that are gone.
func (b *backends) forgetRemoved(own string) {
	if !slices.Contains(b.planned, b.good) {
		b.good = ""
	}
	for address := range b.failures {
		if !b.has(address, own) {
			delete(b.failures, address)
		}
	}
}

func (b *backends) has(address, own string) bool {
	return address == own || slices.Contains(b.planned, address)
}

// order returns all backends, those to try first at the beginning. A sick one is better
// than none.
func (b *backends) order(own string) []string {
	var well, sick []string
	for _, address := range slices.Concat([]string{own, b.good}, b.planned) {
		switch {
		case address == "" || slices.Contains(well, address) || slices.Contains(sick, address):
		case b.isSick(address):
			sick = append(sick, address)
		default:
			well = append(well, address)
		}
	}
	return slices.Concat(well, sick)
}

func (b *backends) isSick(address string) bool { return b.failures[address] >= maxFailures }

// record takes the result of a check, and reports whether the backend has become sick or
// well.
func (b *backends) record(address string, err error) (changed bool) {
	before := b.isSick(address)
	if err == nil {
		delete(b.failures, address)
	} else {
		b.failures[address] = min(b.failures[address]+1, maxFailures)
	}
	return b.isSick(address) != before
}
