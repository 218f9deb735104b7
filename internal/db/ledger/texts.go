package ledger

import "github.com/ckptsidecar/ckptsidecar/internal/db/usage"

// EraseTexts deletes what stands beside the audit log about an agent. The hashes
// of it stay in the log, over salts that go as well.
func (tx *Tx) EraseTexts(agent *AgentRow) error {
	if tx.Tally.Counts() {
		bytes, err := usage.OfTexts(tx.Tx, agent.Owner, agent.Name)
		if err != nil {
			return err
		}
		tx.Tally.AddLog(agent.Owner, -bytes)
	}
	return tx.Exec(`DELETE FROM act_texts WHERE n IN (SELECT a.n FROM places p JOIN acts a ON a.place = p.id
		WHERE p.owner = ?1 AND p.agent = ?2 AND a.beside IS NOT NULL)`, agent.Owner, agent.Name)
}
