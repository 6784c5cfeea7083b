// Takes messages of a queue for real: it says before what that does.
import { useState } from 'react';
import { request } from '../../api/http';
import { useRefresh } from '../../api/live';
import type { Messages as Found, Queue, Settled } from '../../api/types';
import { Content } from '../../ui/Content';
import { Dialog } from '../../ui/Dialog';
import { counted, visible } from '../../ui/format';
import { Failure, Field } from '../../ui/parts';
import { queueUrl } from './Queues';

type Way = 'back' | 'gone';

export function Take({ queue }: { queue: Queue }) {
  const [isOpen, setOpen] = useState(false);
  const [way, setWay] = useState<Way>('back');
  const [many, setMany] = useState('1');
  const [found, setFound] = useState<Found>();
  const [error, setError] = useState<unknown>();
  const refresh = useRefresh();
  const close = () => {
    setOpen(false);
    setFound(undefined);
    setError(undefined);
  };
  const take = async () => {
    setError(undefined);
    try {
      const ack = way === 'gone' ? 'auto' : 'lease:60s';
      const got = await request<Found>('POST', queueUrl(queue, '/receive', { count: many, ack }));
      const leases = got.messages.flatMap(({ lease }) => lease ?? []);
      if (leases.length > 0) await request<Settled>('POST', queueUrl(queue, '/settle'), { json: { requeue: leases } });
      setFound(got);
      await refresh();
    } catch (failure) {
      setError(failure);
    }
  };
  return (
    <>
      <button type="button" disabled={queue.ready === 0} onClick={() => setOpen(true)}>
        Take
      </button>
      {isOpen && (
        <Dialog title={`Take messages of ${visible(queue.name)}`} onClose={close} wide={found !== undefined}>
          {found ? (
            <>
              <p role="status">
                {counted(found.messages.length, 'message')} taken{way === 'back' ? ', and given back.' : ': gone from the queue.'}
              </p>
              {found.messages.map((message) => (
                <section key={message.id}>
                  <h3>{message.id}</h3>
                  <Content raw={{ value: message.content, base64: message.content_base64 }} size={message.bytes} />
                </section>
              ))}
            </>
          ) : (
            <div className="form">
              <p>To look at messages nothing has to be taken: the list of messages has no effect on them.</p>
              <fieldset>
                <legend>Then</legend>
                <label className="check">
                  <input type="radio" name="way" checked={way === 'back'} onChange={() => setWay('back')} data-focus /> give back: the count of deliveries rises, and a delivery limit may end it
                </label>
                <label className="check">
                  <input type="radio" name="way" checked={way === 'gone'} onChange={() => setWay('gone')} /> settle: it is gone, and this cannot be taken back
                </label>
              </fieldset>
              <Field label="Messages at most">
                <input type="number" min="1" max="100" value={many} onChange={(event) => setMany(event.target.value)} />
              </Field>
            </div>
          )}
          <Failure error={error} />
          <div className="row end">
            <button type="button" onClick={close}>
              {found ? 'Close' : 'Cancel'}
            </button>
            {!found && (
              <button type="button" className={`main ${way === 'gone' ? 'destroy' : ''}`} disabled={!(Number(many) >= 1)} onClick={() => void take()}>
                {way === 'gone' ? 'Take and settle' : 'Take and give back'}
              </button>
            )}
          </div>
        </Dialog>
      )}
    </>
  );
}
