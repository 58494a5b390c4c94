import { describeError } from '../../errors.ts';
import { KafkaError } from './kafka-error.ts';
import type { Token } from './tokens.ts';

/** Signs a login to Amazon MSK with the AWS credentials of the environment. An optional dependency: see `PACKAGE`. */
type MskSigner = Pick<typeof import('aws-msk-iam-sasl-signer-js'), 'generateAuthToken'>;

/**
 * It brings 75 packages that are needed for MSK only, so users of MSK install it themselves. As a variable, with marks
 * at its import, bundlers leave the import alone.
 */
const PACKAGE = 'aws-msk-iam-sasl-signer-js';
const loadSigner = async (): Promise<MskSigner> => await import(/* webpackIgnore: true */ /* @vite-ignore */ PACKAGE);

/** A token for the region, which is a signed request. Rejects with LOGIN_REFUSED if the package is not installed. */
export async function signMskToken(region: string, load = loadSigner): Promise<Token> {
  const signer = await load().catch((error: unknown) => {
    const message = `KAFKA_SASL_MECHANISM=aws-msk-iam needs a package that is not installed: npm install ${PACKAGE}`;
    throw new KafkaError('LOGIN_REFUSED', message, { cause: error });
  });
  try {
    const { token, expiryTime } = await signer.generateAuthToken({ region });
    return { value: token, expiresAtMs: expiryTime };
  } catch (error) {
    const message = `the login to MSK could not be signed (${describeError(error)}): check KAFKA_AWS_REGION and the AWS credentials`;
    throw new KafkaError('UNREACHABLE', message, { cause: error });
  }
}
